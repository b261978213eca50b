package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// execute runs statements one by one, outside any transaction.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	for _, sql := range statements {
		_, err := conn.Exec(t.Context(), sql)
		need(t, err)
	}
}

func TestServersThatWouldLoseMessagesAreRefused(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	open := func(allow bool) error {
		ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
		defer cancel()
		d, err := Open(ctx, Config{URL: server.URL(), AllowNoFsync: allow})
		if err == nil {
			need(t, d.Close())
		}
		return err
	}
	execute(t, server.URL(), `ALTER DATABASE postgres SET synchronous_commit = off`)
	if err := open(true); err == nil || !strings.Contains(err.Error(), "synchronous_commit") {
		t.Errorf("synchronous_commit=off: %v", err)
	}
	execute(t, server.Superuser(), `ALTER DATABASE postgres RESET synchronous_commit`, `ALTER SYSTEM SET fsync = off`)
	need(t, server.Restart())
	if err := open(false); err == nil || !strings.Contains(err.Error(), "fsync") {
		t.Errorf("fsync=off: %v", err)
	}
	need(t, open(true))
	execute(t, server.Superuser(), `ALTER SYSTEM RESET fsync`)
	execute(t, server.Superuser(), `ALTER SYSTEM SET full_page_writes = off`)
	need(t, server.Restart())
	if err := open(false); err == nil || !strings.Contains(err.Error(), "full_page_writes") {
		t.Errorf("full_page_writes=off: %v", err)
	}
	need(t, open(true))
}

// A server that changed its mind is refused by the next writer.
func TestWritersCheckTheServerAgain(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	name := url[strings.LastIndex(url, "/")+1:]
	name, _, _ = strings.Cut(name, "?")
	execute(t, url, `ALTER DATABASE `+name+` SET synchronous_commit = off`)
	if w, err := d.OpenWriter(t.Context(), owner("a")); err == nil {
		need(t, w.Close())
		t.Error("a writer was opened on a server with synchronous_commit=off")
	}
}

func TestStoresMayStartTogether(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
			defer cancel()
			d, err := Open(ctx, Config{URL: url, Patience: backendtest.Patience})
			if err != nil {
				t.Error(err)
				return
			}
			made := d.MakeSlices(ctx, now())
			for ctx.Err() == nil && server.SQLState(made) == server.LockNotAvailable {
				// others make them, and take their time: a store tries again as well
				made = d.MakeSlices(ctx, now())
			}
			if err := errors.Join(d.Ping(ctx), made, d.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Open waits for a server that is still starting, and only as long as it was told to.
func TestOpenWaitsForTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	need(t, server.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Config{URL: server.URL()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a server: %v", err)
	}
	opened := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), backendtest.Patience)
		defer cancel()
		d, err := Open(ctx, Config{URL: server.URL()})
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	need(t, server.Restart())
	need(t, <-opened)
}

// A statement that was cancelled says nothing about the server: Open begins anew.
func TestOpenGoesOnWhereStatementsAreCancelled(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	proxy, err := pgtest.NewProxy(base)
	need(t, err)
	t.Cleanup(func() { need(t, proxy.Close()) })
	var statements, next, refused atomic.Int64
	next.Store(1)
	proxy.Judge(func(pgtest.Statement) pgtest.Fate {
		const most = 6
		if statements.Add(1) < next.Load() || refused.Load() == most {
			return pgtest.Pass
		}
		// each time one later than before
		next.Store(refused.Add(1) + 1)
		statements.Store(0)
		return pgtest.Refused
	})
	ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
	defer cancel()
	d, err := Open(ctx, Config{URL: proxy.URL(base), Patience: backendtest.Patience})
	need(t, err)
	need(t, d.Close())
	if refused.Load() == 0 {
		t.Error("no statement was refused")
	}
}

func TestABadURLIsAnErrorAtOnce(t *testing.T) {
	for _, bad := range []string{"postgres://[", "postgres://u@127.0.0.1:1/db?pool_max_conns=x"} {
		if _, err := Open(t.Context(), Config{URL: bad}); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	base := pgtest.URL(t)
	u, err := url.Parse(base)
	need(t, err)
	registry := prometheus.NewRegistry()
	d, err := Open(t.Context(), Config{URL: base, Registry: registry, Patience: backendtest.Patience})
	need(t, err)
	w, err := d.OpenWriter(t.Context(), owner("a"))
	need(t, err)
	_, err = w.TakeShards(t.Context(), []int{1, 2})
	need(t, err)
	_, err = d.OpenClaims(t.Context(), owner("a"))
	need(t, err)
	families, err := registry.Gather()
	need(t, err)
	if len(families) != 11 {
		t.Errorf("%d metrics", len(families))
	}
	need(t, d.Close())
	need(t, d.Close()) // again: nothing to do
	families, err = registry.Gather()
	if err != nil || len(families) > 0 {
		t.Errorf("%d metrics are left, %v", len(families), err)
	}

	conn, err := pgx.Connect(t.Context(), base)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	var left, writers, owners, runs int
	deadline := time.Now().Add(backendtest.Patience)
	for left = 1; left > 0 && time.Now().Before(deadline); {
		need(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()`, u.Path[1:]).Scan(&left))
	}
	need(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pushmesh.writer), (SELECT count(*) FROM pushmesh.owner), (SELECT count(*) FROM pushmesh.claim_run)`).
		Scan(&writers, &owners, &runs))
	if left+writers+owners+runs != 0 {
		t.Errorf("left: %d connections, %d writers, %d owners, %d runs of claims", left, writers, owners, runs)
	}
}
