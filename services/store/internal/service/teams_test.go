package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// unsure is a database that has made every change before: its answer was lost, or is lost now.
type unsure struct {
	Database
	err error
}

func (u unsure) PutTeam(context.Context, *pushmeshv1.Team) (uint64, *pushmeshv1.Team, error) {
	return 9, nil, u.err
}

func (u unsure) DeleteTeam(context.Context, string) (uint64, *pushmeshv1.Team, error) {
	return 9, nil, u.err
}

func (u unsure) AddMembers(context.Context, string, []string) (int, uint64, error) {
	return 0, 9, u.err
}

func (u unsure) RemoveMembers(context.Context, string, []string) (int, uint64, error) {
	return 0, 9, u.err
}

// Edges are told of a change whose answer is lost, and when the same is asked for again: who takes
// a user out of a team a second time, to be sure, must not wait for an edge to ask by itself.
func TestEdgesAreToldOfChangesThatMayBeMade(t *testing.T) {
	for _, err := range []error{nil, errors.New("the connection is gone")} {
		var told []uint64
		s := New(Config{Backend: unsure{err: err}, Teamed: func(v uint64) { told = append(told, v) }, Logger: slog.New(slog.DiscardHandler)})
		for what, call := range map[string]func() error{
			"put": func() error {
				return of(s.PutTeam(t.Context(), &meshv1.StoreServicePutTeamRequest{Team: &pushmeshv1.Team{Name: "a"}}))
			},
			"delete": func() error { return of(s.DeleteTeam(t.Context(), &meshv1.StoreServiceDeleteTeamRequest{Name: "a"})) },
			"add": func() error {
				return of(s.ChangeMembers(t.Context(), &meshv1.StoreServiceChangeMembersRequest{Team: "a", Users: []string{"ann"}}))
			},
			"remove": func() error {
				return of(s.ChangeMembers(t.Context(), &meshv1.StoreServiceChangeMembersRequest{Team: "a", Users: []string{"ann"}, Remove: true}))
			},
		} {
			told = nil
			want := []uint64{9}
			if err != nil {
				want[0] = 0 // no version is known to be there
			}
			if got := call(); (got == nil) != (err == nil) || !slices.Equal(told, want) {
				t.Errorf("%s, %v: edges are told %v, want %v; %v", what, err, told, want, got)
			}
		}
	}
}

func of[R any](_ R, err error) error { return err }
