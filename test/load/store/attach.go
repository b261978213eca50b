package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// attachCallers call at a time, over attachConns connections, as some edges do.
	attachCallers = 400
	attachConns   = 4
	// attachSpan is how long sessions attach, and as long again new ones.
	attachSpan = 15 * time.Second
)

// attach has 100,000 sessions reconnect at another edge, and then new ones come.
func (b *bench) attach(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	conn := try.Get(pgx.Connect(ctx, m.url))
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	try.Do(holdSessions(ctx, conn, 0, sessions, "edge-before"))
	for _, sql := range []string{
		`INSERT INTO pushmesh.session_filter (user_id, name, filter) SELECT user_id, name, 'room/' || connection_id % 16 FROM pushmesh.session`,
		`INSERT INTO pushmesh.cursor (user_id, name, topic, generation, version, epoch, floor, acked, tried, attempts)
			SELECT user_id, name, 'room/' || connection_id % 16, 1, 1, 1, 1, '{}', '{}', '{}' FROM pushmesh.session`,
		`VACUUM ANALYZE pushmesh.session, pushmesh.session_filter, pushmesh.cursor`,
	} {
		_, err := conn.Exec(ctx, sql)
		try.Do(err)
	}
	try.Do(b.DB.Checkpoint(ctx))
	span := min(b.Span, attachSpan)
	for _, c := range []struct {
		what    string
		user    string
		resumed bool
		most    int64 // different ones
	}{{"100,000 sessions reconnect", "user", true, sessions}, {"new sessions come", "new", false, 1 << 40}} {
		before := try.Get(transactions(ctx, conn))
		took, spent, err := attachFor(ctx, m.Store.Addr, span, c.user, c.resumed, c.most)
		try.Do(err)
		after := try.Get(transactions(ctx, conn))
		n := float64(len(took))
		rate := n / spent.Seconds()
		reference := fmt.Sprintf("%d callers for %s: p50 %s, p99 %s, slowest %s; %.2f transactions for each",
			attachCallers, span, ms(took, .5), ms(took, .99), ms(took, 1), float64(after-before)/n)
		if c.resumed {
			b.Add(table.AtLeast(c.what, rate, "/s", 10_000, reference))
		} else {
			b.Add(table.Figure(c.what, rate, "/s", reference))
		}
	}
	return nil
}

// transactions that the database has committed so far, as its statistics have it.
func transactions(ctx context.Context, conn *pgx.Conn) (n int64, err error) {
	if _, err = conn.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	return n, err
}

// attachFor attaches sessions of users one after the other, and after most from the first on, from
// many callers at a time. took are sorted.
func attachFor(ctx context.Context, store string, span time.Duration, user string, resumed bool, most int64) (took []time.Duration, spent time.Duration, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	began := time.Now()
	until := began.Add(span)
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range attachConns {
		conn, err := suite.Dial(store)
		if err != nil {
			return nil, 0, err
		}
		defer func() { _ = conn.Close() }()
		api := meshv1.NewStoreServiceClient(conn)
		for range attachCallers / attachConns {
			all.Go(func() {
				var mine []time.Duration
				for ctx.Err() == nil && time.Now().Before(until) {
					asked := time.Now()
					if err := attachOne(ctx, api, user, resumed, next.Add(1), most); err != nil {
						stop(err)
						return
					}
					mine = append(mine, time.Since(asked))
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, mine...)
			})
		}
	}
	all.Wait()
	slices.Sort(took)
	return took, time.Since(began), context.Cause(ctx)
}

func attachOne(ctx context.Context, api meshv1.StoreServiceClient, user string, resumed bool, n, most int64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := api.AttachSession(ctx, &meshv1.AttachSessionRequest{
		User: fmt.Sprintf("%s-%d", user, n%most), Name: "phone", EdgeId: fmt.Sprintf("edge-%d", n/most%2), ConnectionId: uint64(n),
	})
	switch {
	case err != nil:
		return fmt.Errorf("attach: %w", err)
	case resp.GetResumed() != resumed || resumed && (len(resp.GetCursors()) != 1 || len(resp.GetFilters()) != 1):
		return fmt.Errorf("attach: %v", resp)
	}
	return nil
}
