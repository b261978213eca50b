package backend

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// MaxRemovedTeams is how many rows are kept of teams and memberships that are there no more: who
// has missed more removals than that is sent everything anew.
const MaxRemovedTeams = 10_000

// VersionsLost is how many versions of teams, and of revocations, NewEpoch leaves room for: edges
// may have some that a database which was rewound doesn't know, and another change must have none
// of them. Whoever follows teams begins anew after that.
const VersionsLost = 1 << 20

// Teams and the users in them, and the version of the last change, which is never 0. What changes
// nothing has no version of its own.
type Teams interface {
	// PutTeam makes or replaces a team that was found good, and says what was there before; nil:
	// nothing. A *code.Error OVERLOADED beyond team.MaxTeams.
	PutTeam(ctx context.Context, t *pushmeshv1.Team) (version uint64, before *pushmeshv1.Team, err error)
	// DeleteTeam deletes a team and its memberships, and says what was there; ErrNotFound where
	// there is none.
	DeleteTeam(ctx context.Context, name string) (version uint64, before *pushmeshv1.Team, err error)
	// AddMembers adds users, each named once, and says how many were no members. ErrNotFound where
	// there is no such team; a *code.Error OVERLOADED beyond team.MaxMemberships and
	// team.MaxOfUser: then none is added.
	AddMembers(ctx context.Context, name string, users []string) (changed int, version uint64, err error)
	// RemoveMembers removes users, each named once, and says how many were members.
	RemoveMembers(ctx context.Context, name string, users []string) (changed int, version uint64, err error)
	// FindTeams is up to limit of the members of a team, of the teams of a user, or, where both are
	// "", of all teams, after a name and in the order of names (bytes).
	FindTeams(ctx context.Context, name, user, after string, limit int) ([]*meshv1.TeamEntry, error)
	// FollowTeams is what has changed since version have, in the order of versions. begun is that
	// of meshv1.StoreServiceFollowTeamsRequest; limit is at least 1.
	FollowTeams(ctx context.Context, have, begun uint64, limit int) (TeamsPage, error)
}

// TeamsPage is an answer of FollowTeams.
type TeamsPage struct {
	// Version up to which the caller has all changes with this page, and that of the last change.
	Version, Newest uint64
	// More: there are others. Anew: what the caller has does not count, and the page is the first
	// one.
	More, Anew bool
	All        []*meshv1.TeamEntry
}

// PageOfTeams makes a page of what was read: one more than limit where there are so many, and the
// version as it was before that.
func PageOfTeams(version uint64, anew bool, all []*meshv1.TeamEntry, limit int) TeamsPage {
	p := TeamsPage{Version: version, Newest: version, Anew: anew, All: all}
	if p.More = len(all) > limit; p.More {
		p.All = all[:limit]
	}
	if n := len(p.All); n > 0 && (p.More || p.All[n-1].GetVersion() > version) {
		p.Version = p.All[n-1].GetVersion()
		p.Newest = max(p.Version, version)
	}
	return p
}

// TeamGrants is what a team grants, as a backend keeps it.
func TeamGrants(t *pushmeshv1.Team) ([]byte, error) {
	data, err := proto.Marshal(&pushmeshv1.Team{Subscribe: t.GetSubscribe(), Publish: t.GetPublish(), Claim: t.GetClaim(), Group: t.GetGroup()})
	if err != nil {
		return nil, fmt.Errorf("team %s: %w", t.GetName(), err)
	}
	return data, nil
}

// KeptTeam is an entry as it is read from a row.
func KeptTeam(name, user string, removed bool, version, born uint64, grants []byte) (*meshv1.TeamEntry, error) {
	e := &meshv1.TeamEntry{Team: &pushmeshv1.Team{}, User: user, Removed: removed, Version: version, Born: born}
	if user == "" && !removed {
		if err := proto.Unmarshal(grants, e.GetTeam()); err != nil {
			return nil, fmt.Errorf("team %s: %w", name, err)
		}
		e.Team.Version = version
	}
	e.Team.Name = name
	return e, nil
}

// RoomForTeams is a *code.Error where there are too many teams, or too many memberships.
func RoomForTeams(teams, memberships int) error {
	switch {
	case teams > team.MaxTeams:
		return code.New(wirev1.Code_CODE_OVERLOADED, fmt.Sprintf("there are %d teams, and no more can be kept: delete some, or grant by claims of tokens or by a hook", team.MaxTeams))
	case memberships > team.MaxMemberships:
		return code.New(wirev1.Code_CODE_OVERLOADED, fmt.Sprintf(
			"there would be more than %d memberships: remove some, or grant by claims of tokens or by a hook, which are for more users than that", team.MaxMemberships))
	}
	return nil
}

// TooManyOfUser refuses a user one team more.
func TooManyOfUser(user string) error {
	return code.New(wirev1.Code_CODE_OVERLOADED, fmt.Sprintf("user %s would be in more than %d teams: remove it from others, or make a team that grants what several do", user, team.MaxOfUser))
}
