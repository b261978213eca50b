package store

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// The machine's clock goes ahead by a year under a store that runs, and back: messages bear the database's time, none is too old, no slice is dropped, no session expires, and readiness
// says why.
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

// A store whose machine's clock is wrong from the start does not start, says why, and starts once the clock is right, or at the operator's word.
func TestAStoreWaitsForTheRightTime(t *testing.T) {
	t.Parallel()
	host, db := &hostClock{}, pgtest.URL(t)
	host.set(365 * 24 * time.Hour)
	s := Settings{ID: "s1", DB: db, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Standalone: true, LogLevel: "error", Clock: host.now}
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
