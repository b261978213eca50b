package store

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A store works as a role that may change no schema, once --migrate-only has run as the owner, and
// leaves what it did to a store that has the owner's role beside its own.
func TestStoresWithoutDDL(t *testing.T) {
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	need(t, Migrate(within(t), Settings{DB: role, DBOwner: owner, MigrateOnly: true, LogLevel: "error"}))
	first, c := alone(t, role)
	if r := appendAll(t, c, item(1, "room/1", "x"))[1]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 1 {
		t.Fatalf("appended: %v", r)
	}
	a, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "client:phone", Name: "s", EdgeId: "e"})
	need(t, err)
	w := &meshv1.SessionWrite{User: "client:phone", Name: "s", Generation: a.GetGeneration(), Cursors: []*meshv1.SessionCursor{{Topic: "room/1", Floor: 1}}}
	if resp, err := c.WriteCursors(within(t), &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{w}}); err != nil || resp.GetCodes()[0] != wirev1.Code_CODE_OK {
		t.Fatalf("written: %v, %v", resp, err)
	}
	need(t, first.Stop(within(t)))
	st := serving(t, Settings{ID: "s2", DB: role, DBOwner: owner, Standalone: true, LogLevel: "warn"})
	c = dial(t, st.Addr())
	if _, err := c.AdoptSession(within(t), &meshv1.AdoptSessionRequest{User: "client:phone", Name: "s", ToUser: "ann", ToName: "s"}); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetSession(within(t), &meshv1.GetSessionRequest{User: "ann", Name: "s"})
	need(t, err)
	if cursors := got.GetSession().GetCursors(); len(cursors) != 1 || cursors[0].GetFloor() != 1 {
		t.Errorf("the session is %v", got.GetSession())
	}
}

func TestSettingsOfTheOwner(t *testing.T) {
	const db = "postgres://u@h/d"
	for want, s := range map[string]Settings{
		"need Postgres":             {DB: "sqlite:x", MigrateOnly: true},
		"must be postgres://":       {DB: db, DBOwner: "mysql://secret"},
		"about --db alone":          {DB: db, DBOwner: db, ShardDBs: map[string]string{"b": db}},
		"run --migrate-only for ea": {DB: db, MigrateOnly: true, ShardDBs: map[string]string{"b": db}},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, s := range []Settings{{DB: db, MigrateOnly: true}, {DB: db, DBOwner: db, Flags: tierauth.Flags{PlainTiers: true}}} {
		if err := s.Check(); err != nil {
			t.Errorf("%q, only migrating: %t: %v", s.DBOwner, s.MigrateOnly, err)
		}
	}
}
