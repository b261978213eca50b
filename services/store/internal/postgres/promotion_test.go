package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// takesShard is how a writer that wants a shard fares.
func takesShard(t *testing.T, d *DB) error {
	t.Helper()
	w, err := d.OpenWriter(t.Context(), owner("a"))
	if err != nil {
		return err
	}
	defer func() { need(t, w.Close()) }()
	_, err = w.TakeShards(t.Context(), []int{3})
	return err
}

// A promoted server takes no appends until an operator reports whether its log is whole; one that
// was only restarted or crashed does.
func TestAPromotedServerIsNotTrusted(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	d := open(t, pg.URL())
	need(t, takesShard(t, d))
	need(t, pg.Kill())
	need(t, pg.Restart())
	need(t, openingLast(t, func() error { return takesShard(t, d) }))

	need(t, pg.Promote())
	if err := openingLast(t, func() error { return takesShard(t, d) }); !errors.Is(err, server.ErrRewound) {
		t.Fatalf("after a promotion: %v", err)
	}
	if _, err := d.OpenOutbox(t.Context(), owner("a")); !errors.Is(err, server.ErrRewound) {
		t.Errorf("the outbox after a promotion: %v", err)
	}
	if _, err := d.OpenClaims(t.Context(), owner("a")); !errors.Is(err, server.ErrRewound) {
		t.Errorf("claims after a promotion, which could give tokens twice: %v", err)
	}
	if _, _, err := d.ListNamespaces(t.Context(), 0); err != nil {
		t.Errorf("reads go on: %v", err)
	}
	need(t, d.SameEpoch(t.Context()))
	need(t, takesShard(t, d))
	run, err := d.OpenClaims(t.Context(), owner("a"))
	need(t, err)
	need(t, run.Close())

	need(t, pg.Promote())
	d = openWith(t, Config{URL: pg.URL(), Patience: backendtest.Patience})
	if err := takesShard(t, d); !errors.Is(err, server.ErrRewound) {
		t.Fatalf("after a second promotion: %v", err)
	}
	need(t, d.NewEpoch(t.Context(), now()))
	need(t, takesShard(t, d))

	need(t, pg.Promote())
	need(t, takesShard(t, openWith(t, Config{URL: pg.URL(), TrustPromotion: true, Patience: backendtest.Patience})))
	need(t, takesShard(t, openWith(t, Config{URL: pg.URL(), Patience: backendtest.Patience})))

	// A copy on another system: what the log knows is a system that this one isn't.
	execute(t, pg.URL(), `UPDATE pushmesh.server SET system = system + 1`)
	if err := takesShard(t, openWith(t, Config{URL: pg.URL(), TrustPromotion: true, Patience: backendtest.Patience})); !errors.Is(err, server.ErrRewound) {
		t.Errorf("on another system: %v", err)
	}
}

// openingLast repeats what fails while connections to a server that has gone are found out, for a
// while.
func openingLast(t *testing.T, f func() error) (err error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(backendtest.Patience)
	for {
		if err = f(); err == nil || errors.Is(err, server.ErrRewound) || errors.Is(err, backend.ErrConflict) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}
