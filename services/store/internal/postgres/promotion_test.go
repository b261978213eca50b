package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// claims says what a writer is told that wants a shard.
func claims(t *testing.T, d *DB) error {
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
	server := pgtest.New(t)
	d := open(t, server.URL())
	need(t, claims(t, d))
	need(t, server.Kill())
	need(t, server.Restart())
	need(t, openingLast(t, func() error { return claims(t, d) }))

	need(t, server.Promote())
	if err := openingLast(t, func() error { return claims(t, d) }); !errors.Is(err, ErrRewound) {
		t.Fatalf("after a promotion: %v", err)
	}
	if _, err := d.OpenOutbox(t.Context(), owner("a")); !errors.Is(err, ErrRewound) {
		t.Errorf("the outbox after a promotion: %v", err)
	}
	if _, err := d.OpenClaims(t.Context(), owner("a")); !errors.Is(err, ErrRewound) {
		t.Errorf("claims after a promotion, which could give tokens twice: %v", err)
	}
	if _, _, err := d.ListNamespaces(t.Context(), 0); err != nil {
		t.Errorf("reads go on: %v", err)
	}
	need(t, d.SameEpoch(t.Context()))
	need(t, claims(t, d))
	claimsOf(t, d, "a", false)

	need(t, server.Promote())
	d = openWith(t, Config{URL: server.URL(), Patience: backendtest.Patience})
	if err := claims(t, d); !errors.Is(err, ErrRewound) {
		t.Fatalf("after a second promotion: %v", err)
	}
	need(t, d.NewEpoch(t.Context(), now()))
	need(t, claims(t, d))

	need(t, server.Promote())
	need(t, claims(t, openWith(t, Config{URL: server.URL(), TrustPromotion: true, Patience: backendtest.Patience})))
	need(t, claims(t, openWith(t, Config{URL: server.URL(), Patience: backendtest.Patience})))

	// A copy on another system: what the log knows is a system that this one isn't.
	execute(t, server.URL(), `UPDATE pushmesh.server SET system = system + 1`)
	if err := claims(t, openWith(t, Config{URL: server.URL(), TrustPromotion: true, Patience: backendtest.Patience})); !errors.Is(err, ErrRewound) {
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
		if err = f(); err == nil || errors.Is(err, ErrRewound) || errors.Is(err, backend.ErrConflict) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}
