package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/log"
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

	synchronous(t, pg, true)
	need(t, pg.Promote())
	need(t, takesShard(t, openWith(t, Config{URL: pg.URL(), TrustPromotion: true, Patience: backendtest.Patience})))
	need(t, takesShard(t, openWith(t, Config{URL: pg.URL(), Patience: backendtest.Patience})))

	// A copy on another system: what the log knows is a system that this one isn't.
	execute(t, pg.URL(), `UPDATE pushmesh.server SET system = system + 1`)
	if err := takesShard(t, openWith(t, Config{URL: pg.URL(), TrustPromotion: true, Patience: backendtest.Patience})); !errors.Is(err, server.ErrRewound) {
		t.Errorf("on another system: %v", err)
	}
}

// synchronous has the database say that commits waited for a standby, or that they did not.
func synchronous(t *testing.T, pg *pgserver.Server, yes bool) {
	t.Helper()
	pgtest.Exec(t, pg.URL(), `UPDATE pushmesh.server SET synchronous = $1`, yes)
}

// A promotion is trusted only where stores have seen that commits waited for a standby: they keep
// what they see where the standby has it.
func TestThePromotionOfAnAsynchronousStandbyIsNotTrusted(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	trusting := func() *DB {
		return openWith(t, Config{URL: pg.URL(), TrustPromotion: true, Patience: backendtest.Patience})
	}
	d := trusting()
	seen := func() string {
		t.Helper()
		all, err := server.Query(t.Context(), d.Server, pgx.RowTo[string], `SELECT coalesce(synchronous::text, 'unknown') FROM pushmesh.server`)
		need(t, err)
		return all[0]
	}
	if s := seen(); s != "unknown" {
		t.Errorf("before anybody has looked: %s", s)
	}
	need(t, takesShard(t, d))
	if s := seen(); s != "false" {
		t.Errorf("of a server without a standby: %s", s)
	}
	if err := d.CheckPromotion(); err == nil || !strings.Contains(err.Error(), "synchronous_standby_names") {
		t.Errorf("where no promotion could be trusted: %v", err)
	}
	need(t, pg.Promote())
	d = trusting()
	if err := takesShard(t, d); !errors.Is(err, server.ErrRewound) || !strings.Contains(err.Error(), "synchronous_standby_names was empty") {
		t.Errorf("after the promotion of a standby that nobody waited for: %v", err)
	}
	pgtest.Exec(t, pg.URL(), `UPDATE pushmesh.server SET synchronous = NULL`)
	if err := takesShard(t, d); !errors.Is(err, server.ErrRewound) || !strings.Contains(err.Error(), "no store of this version") {
		t.Errorf("where nobody has looked: %v", err)
	}
	synchronous(t, pg, true)
	need(t, takesShard(t, d))
	if s := seen(); s != "false" {
		t.Errorf("of the promoted server, which has no standby: %s", s)
	}
	if err := open(t, pg.URL()).CheckPromotion(); err != nil {
		t.Errorf("where no promotion is trusted anyway: %v", err)
	}
}

// Where a standby fell behind and commits stopped to wait for it, it was not told either: a store
// that saw it does not trust its promotion.
func TestAStoreRemembersThatNoStandbyWasWaitedFor(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	d := openWith(t, Config{URL: pg.URL(), TrustPromotion: true, Patience: backendtest.Patience})
	w, err := d.OpenWatch(t.Context(), owner("a"))
	need(t, err)
	_, err = w.Look(t.Context())
	need(t, err)
	synchronous(t, pg, true) // so it is on the standby
	need(t, pg.Promote())
	_ = w.Close()
	for range 2 {
		err := openingLast(t, func() error { return takesShard(t, d) })
		if !errors.Is(err, server.ErrRewound) || !strings.Contains(err.Error(), "waited for no standby") {
			t.Errorf("after the promotion: %v", err)
		}
	}
	need(t, d.SameEpoch(t.Context()))
	need(t, takesShard(t, d))
}

// Whether commits wait for a standby is noted while stores run, also where the standby is away: the
// watch does not wait for it, which would look like a store that is silent.
func TestTheWatchNotesWhetherCommitsWait(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	d := open(t, pg.URL())
	need(t, takesShard(t, d))
	w, err := d.OpenWatch(t.Context(), owner("a"))
	need(t, err)
	defer func() { need(t, w.Close()) }()
	for _, step := range []struct {
		names string
		want  bool
	}{{"nobody", true}, {"", false}} {
		execute(t, pg.Superuser(), `ALTER SYSTEM SET synchronous_standby_names = '`+step.names+`'`, `SELECT pg_reload_conf()`)
		deadline := time.Now().Add(backendtest.Patience)
		for noted := !step.want; noted != step.want; {
			began := time.Now()
			_, err := w.Look(t.Context())
			need(t, err)
			if took := time.Since(began); took > d.Config.Patience {
				t.Errorf("a look took %v", took)
			}
			all, err := server.Query(t.Context(), d.Server, pgx.RowTo[bool], `SELECT synchronous FROM pushmesh.server`)
			need(t, err)
			if noted = all[0]; time.Now().After(deadline) {
				t.Fatalf("with %q it is not noted that commits wait: %v", step.names, step.want)
			}
		}
	}
}

// What a commit waits for is fixed when its connection is made: whatever the server is set to later
// on, nothing that it acknowledges can be lost.
func TestAWritersCommitsStaySynchronous(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	d := open(t, pg.URL())
	w, err := d.OpenWriter(t.Context(), owner("a"))
	need(t, err)
	defer func() { need(t, w.Close()) }()
	execute(t, pg.Superuser(), `ALTER SYSTEM SET synchronous_commit = off`, `SELECT pg_reload_conf()`)
	conn, err := pgx.Connect(t.Context(), pg.URL())
	need(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	show := func(on server.Querier) (set string) {
		t.Helper()
		need(t, on.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&set))
		return set
	}
	deadline := time.Now().Add(backendtest.Patience)
	for show(conn) != "off" {
		if time.Now().After(deadline) {
			t.Fatal("the server does not take its new setting")
		}
	}
	if set := show(w.(*log.Writer).Conn); set != "on" {
		t.Errorf("a writer's commits are %s", set)
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
