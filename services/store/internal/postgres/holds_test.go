package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// holdAgain takes shard 3 for a store, and says which hold that is.
func holdAgain(t *testing.T, d *DB, store string) (w backend.Writer, hold backend.Hold) {
	t.Helper()
	w, _, err := writerOf(t.Context(), d, store, 3)
	need(t, err)
	if hold = w.Hold(3); hold == "" {
		t.Fatal("a shard that is owned has no hold")
	}
	return w, hold
}

// A store that loses its connection, however that happens, finds that nobody else had its shards:
// also where the server was killed and came back. A promoted server is another one.
func TestAHoldOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	d := openWith(t, Config{URL: server.URL(), Patience: backendtest.Patience})
	_, first := holdAgain(t, d, "a")
	for what, lose := range map[string]func(){
		"its backend is terminated": func() {
			pgtest.Terminate(t, server.URL(), "application_name = 'pushmesh-writer'")
		},
		"the server is killed": func() {
			need(t, server.Kill())
			need(t, server.Restart())
		},
		"the server is restarted": func() { need(t, server.Restart()) },
	} {
		lose()
		if _, hold := holdAgain(t, d, "a"); hold != first {
			t.Errorf("after %s: hold %s, before %s", what, hold, first)
		}
	}
	need(t, server.Promote())
	need(t, openingLast(t, func() error { return d.SameEpoch(t.Context()) }))
	if _, hold := holdAgain(t, d, "a"); hold == first {
		t.Errorf("after a promotion the hold is %s, as before", hold)
	}
}

// Whoever else had the shard in between, and wherever its data was, the hold is another one.
func TestAHoldEndsWithAnotherOwner(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	d, other := openWith(t, Config{URL: db, Patience: backendtest.Patience}), open(t, pgtest.URL(t))
	var seen []backend.Hold
	next := func(what string) {
		t.Helper()
		_, hold := holdAgain(t, d, "a")
		if slices.Contains(seen, hold) {
			t.Errorf("after %s the hold is %s, as before", what, hold)
		}
		seen = append(seen, hold)
		pgtest.Terminate(t, db, "application_name = 'pushmesh-writer'")
	}
	next("nothing")
	w, _ := holdAgain(t, d, "b")
	need(t, w.Close())
	next("another store gave it back")
	_, _ = holdAgain(t, d, "b")
	pgtest.Terminate(t, db, "application_name = 'pushmesh-writer'")
	next("another store lost it")
	need(t, d.Fence(t.Context(), "a", owner("a").Incarnation))
	next("a fence")
	need(t, d.Move(t.Context(), other.Log, 3))
	need(t, other.Move(t.Context(), d.Log, 3))
	next("a move there and back")
	need(t, d.NewEpoch(t.Context(), now()+uint64(time.Hour.Microseconds())))
	next("a new epoch")
}
