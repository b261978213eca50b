package store

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/housekeeping"
)

// hostClock is a machine's clock that a test moves.
type hostClock struct{ ahead atomic.Int64 }

func (c *hostClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

func (c *hostClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// verbose is what readiness says of one check.
func verbose(t *testing.T, st *Store, check string) string {
	t.Helper()
	resp, err := http.Get("http://" + st.HTTPAddr() + "/readyz?verbose")
	need(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	need(t, err)
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, check+":") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// The machine's clock goes ahead by a year under a store that runs, and back: messages bear the
// database's time, none is too old, no slice is dropped, no session expires, and readiness says
// why.
func TestAHostsClockDeletesNothing(t *testing.T) {
	t.Parallel()
	host, db := &hostClock{}, pgtest.URL(t)
	st := serving(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error", Clock: host.now})
	c := dial(t, st.Addr())
	keeper := housekeeping.New(housekeeping.Config{Backend: st.core.backend, Ages: st.core.clock.Check, Now: st.core.clock.Now})
	const name = "room/clock"
	a, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e", TtlS: 3600})
	need(t, err)
	_, err = c.WriteCursors(within(t), &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{{User: "u", Name: "s", Generation: a.GetGeneration(), Detach: true}}})
	need(t, err)
	want := uint64(0)
	for _, ahead := range []time.Duration{0, 365 * 24 * time.Hour, -365 * 24 * time.Hour, 0} {
		host.set(ahead)
		eventually(t, "the store compares the clocks", func() bool {
			return strings.Contains(verbose(t, st, "clock"), "degraded") == (ahead != 0)
		})
		before := time.Now().Add(-time.Second)
		taken(t, c, item(1, name, "x"))
		want++
		for _, job := range []func(context.Context) error{keeper.Slices, keeper.Sessions} {
			if err := job(within(t)); (err == nil) != (ahead == 0) {
				t.Errorf("housekeeping with a clock %s ahead: %v", ahead, err)
			}
		}
		all, _, end := readAll(t, c, &meshv1.ReadLogRequest{Topic: name})
		if len(all) != int(want) {
			t.Fatalf("%s ahead: %d messages of %d, %v", ahead, len(all), want, end)
		}
		at := time.UnixMicro(int64(inDatabase(t, db, `SELECT max(at) FROM pushmesh.log WHERE topic = $1`, name)))
		if at.Before(before) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("%s ahead: a message was stored as of %s", ahead, at)
		}
		if n := inDatabase(t, db, `SELECT count(*) FROM pushmesh.session`); n != 1 {
			t.Fatalf("%s ahead: %d sessions", ahead, n)
		}
	}
}

// A store whose machine's clock is wrong from the start does not start, says why, and starts once
// the clock is right, or at the operator's word.
func TestAStoreWaitsForTheRightTime(t *testing.T) {
	t.Parallel()
	host, db := &hostClock{}, pgtest.URL(t)
	host.set(365 * 24 * time.Hour)
	s := Settings{ID: "s1", DB: db, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Standalone: true, LogLevel: "error", Clock: host.now}
	s.PlainTiers = true
	st, err := New(within(t), s)
	need(t, err)
	ended := make(chan error, 1)
	go func() { ended <- st.Start(within(t)) }()
	eventually(t, "readiness says why", func() bool {
		return st.HTTPAddr() != "" && strings.Contains(verbose(t, st, "clock"), "8760h0m0s ahead of the database's")
	})
	if err := st.core.checkServing(); err == nil {
		t.Error("it serves")
	}
	host.set(0)
	need(t, <-ended)
	need(t, st.Stop(within(t)))
	host.set(-time.Hour)
	s.TrustClock = true
	serving(t, s)
}

// stepping gives a database a clock of its own, which the function that is returned sets ahead of
// the server's.
func stepping(t *testing.T, db string) (step func(ahead time.Duration)) {
	t.Helper()
	conn, err := pgx.Connect(within(t), db)
	need(t, err)
	t.Cleanup(func() { need(t, conn.Close(context.Background())) })
	_, err = conn.Exec(within(t), `
		CREATE SCHEMA stepping;
		CREATE TABLE stepping.clock (ahead interval NOT NULL);
		INSERT INTO stepping.clock VALUES ('0');
		CREATE FUNCTION stepping.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM stepping.clock';
		CREATE FUNCTION stepping.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT pg_catalog.now() + ahead FROM stepping.clock';
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, stepping, pg_catalog', current_database()); END $$`)
	need(t, err)
	return func(ahead time.Duration) {
		t.Helper()
		_, err := conn.Exec(within(t), `UPDATE stepping.clock SET ahead = $1`, ahead)
		need(t, err)
	}
}

// Who has a lease has it for its time, by no clock that may be set: where the clocks of the
// database and of the machine are set ahead, a session doesn't get a second holder, and where they
// are set back, one whose holder is gone is free in time.
func TestALeaseLastsItsTimeWhateverTheClocks(t *testing.T) {
	t.Parallel()
	host, db := &hostClock{}, pgtest.URL(t)
	step := stepping(t, db)
	st := serving(t, Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error", Clock: host.now})
	c := dial(t, st.Addr())
	attach := func(name, edge string, length time.Duration) *meshv1.AttachSessionResponse {
		t.Helper()
		resp, err := c.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "$group", Name: name, EdgeId: edge, LeaseMs: uint32(length.Milliseconds())})
		need(t, err)
		return resp
	}
	set := func(ahead time.Duration) {
		t.Helper()
		host.set(ahead)
		step(ahead)
		eventually(t, "the store's time is the database's", func() bool {
			apart := time.Until(st.core.clock.Now()) - ahead
			return apart < time.Second && apart > -time.Second
		})
	}
	attach("g/long", "a", time.Minute)
	set(2 * time.Minute)
	if r := attach("g/long", "b", time.Minute); r.GetGeneration() != 0 || r.GetPreviousEdge() != "a" {
		t.Errorf("the clocks are set ahead: b got %v while a has the lease", r)
	}
	attach("g/short", "a", 100*time.Millisecond)
	set(-10 * time.Minute)
	eventually(t, "the lease of who is gone runs out after the clocks are set back", func() bool {
		return attach("g/short", "b", 100*time.Millisecond).GetGeneration() != 0
	})
}

// Where the operator says that the database's clock is right and the machine's is not, a new epoch
// is begun by the database's.
func TestANewEpochBeginsByTheTrustedClock(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	stepping(t, db)(time.Hour)
	s := Settings{ID: "s1", DB: db, Standalone: true, LogLevel: "error", TrustClock: true, NewEpoch: true}
	st := serving(t, s)
	c := dial(t, st.Addr())
	taken(t, c, item(1, "room/epoch", "x"))
}
