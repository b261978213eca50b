package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/log"
)

// pulseOf is what a watch sees of a run; nil: it has no connections.
func pulseOf(t *testing.T, w backend.Watch, id backend.RunID) *backend.Pulse {
	t.Helper()
	v, err := w.Look(t.Context())
	need(t, err)
	for _, p := range v.Runs {
		if p.RunID == id {
			return &p
		}
	}
	return nil
}

// still looks until a run's mark is the same twice and nothing is under way.
func still(t *testing.T, w backend.Watch, id backend.RunID) backend.Pulse {
	t.Helper()
	for last := ""; ; {
		p := pulseOf(t, w, id)
		if p == nil {
			t.Fatal("the run has no connections")
		}
		if p.Mark == last && !p.Busy {
			return *p
		}
		last = p.Mark
	}
}

// Whatever a run does moves its mark; one that does nothing keeps it, is fenced by it, and by no
// earlier one.
func TestAWatchSeesWhatRunsDo(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.URL(t))
	a, b := backend.Owner{StoreID: "a", Incarnation: 1, Address: "a:1"}, backend.Owner{StoreID: "b", Incarnation: 1, Address: "b:1"}
	mine, err := d.OpenWatch(t.Context(), a)
	need(t, err)
	defer func() { need(t, mine.Close()) }()
	theirs, err := d.OpenWatch(t.Context(), b)
	need(t, err)
	w, err := d.OpenWriter(t.Context(), b)
	need(t, err)
	defer func() { need(t, w.Close()) }()
	_, err = w.TakeShards(t.Context(), []int{1, 2})
	need(t, err)

	before := still(t, mine, b.Run())
	for what, does := range map[string]func() error{
		"a look": func() error { _, err := theirs.Look(t.Context()); return err },
		"a lane that asks whether its writer is good": func() error { _, err := w.TakeShards(t.Context(), nil); return err },
	} {
		need(t, does())
		after := still(t, mine, b.Run())
		if after.Mark == before.Mark {
			t.Errorf("%s leaves the mark as it was: %s", what, after.Mark)
		}
		if err := mine.Fence(t.Context(), b.Run(), before.Mark); !errors.Is(err, backend.ErrAlive) {
			t.Errorf("fenced by a mark from before %s: %v", what, err)
		}
		before = after
	}
	if v, err := mine.Look(t.Context()); err != nil || len(v.Owners) != 2 || v.Owners[0].Run() != b.Run() {
		t.Errorf("owners: %v, %v", v.Owners, err)
	}
	need(t, mine.Fence(t.Context(), b.Run(), before.Mark))
	if p := pulseOf(t, mine, b.Run()); p != nil {
		t.Errorf("after the fence: %+v", p)
	}
	if _, err := theirs.Look(t.Context()); err == nil {
		t.Error("a fenced store can look")
	}
	need(t, theirs.Close())
	if _, err := w.TakeShards(t.Context(), nil); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a fenced writer: %v", err)
	}
	need(t, mine.Fence(t.Context(), b.Run(), "")) // nobody left: no error
}

// A store whose statement the database works on is busy, and is not fenced; one that leaves the
// server waiting for it is not busy.
func TestAWatchTellsWorkFromSilence(t *testing.T) {
	t.Parallel()
	url := pgtest.Superuser(t, pgtest.URL(t)) // who may turn track_activities off
	d := open(t, url)
	a, b := backend.Owner{StoreID: "a", Incarnation: 1}, backend.Owner{StoreID: "b", Incarnation: 1}
	mine, err := d.OpenWatch(t.Context(), a)
	need(t, err)
	defer func() { need(t, mine.Close()) }()
	opened, err := d.OpenWriter(t.Context(), b)
	need(t, err)
	defer func() { _ = opened.Close() }()
	w, _ := opened.(*log.Writer)
	done := make(chan error, 1)
	go func() {
		_, err := w.Conn.Exec(t.Context(), `SELECT pg_sleep(600)`)
		done <- err
	}()
	for p := pulseOf(t, mine, b.Run()); !p.Busy; p = pulseOf(t, mine, b.Run()) {
	}
	if err := mine.Fence(t.Context(), b.Run(), pulseOf(t, mine, b.Run()).Mark); !errors.Is(err, backend.ErrAlive) {
		t.Errorf("fenced at work: %v", err)
	}
	pid, _ := w.Conn.Backend()
	pgtest.Exec(t, url, `SELECT pg_cancel_backend($1)`, pid)
	if err := <-done; err == nil {
		t.Error("the statement was not cancelled")
	}
	_, err = w.Conn.Exec(t.Context(), `SET track_activities = off`)
	need(t, err)
	p := pulseOf(t, mine, b.Run())
	if !strings.Contains(p.Unfenceable, "track_activities") {
		t.Errorf("nobody says why it can't be fenced: %+v", p)
	}
	if err := mine.Fence(t.Context(), b.Run(), p.Mark); !errors.Is(err, backend.ErrAlive) {
		t.Errorf("fenced though nobody sees what it does: %v", err)
	}
	_, err = w.Conn.Exec(t.Context(), `SET track_activities = on; BEGIN`) // and nothing more
	need(t, err)
	need(t, mine.Fence(t.Context(), b.Run(), still(t, mine, b.Run()).Mark))
}

// A heartbeat writes nothing: a long reader has nothing to keep.
func TestHeartbeatsWriteNothing(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.URL(t))
	w, err := d.OpenWatch(t.Context(), backend.Owner{StoreID: "a", Incarnation: 1})
	need(t, err)
	defer func() { need(t, w.Close()) }()
	_, err = w.(*log.Watch).Conn.Exec(t.Context(), `SET default_transaction_read_only = on`)
	need(t, err)
	_, err = w.Look(t.Context())
	need(t, err)
}
