package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	attachCallers = 400 // clients that edges attach at a time
	attachEdges   = 4   // edges, with a connection each
	attachPause   = 20 * time.Millisecond
	attachSpan    = 15 * time.Second // at most, for each of the two loads
)

// attachLoad has 100,000 sessions reconnect, each with a filter and a cursor, and then new ones
// attach.
func (b *bench) attachLoad(ctx context.Context) (err error) {
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
		try.Get(conn.Exec(ctx, sql))
	}
	// #nosec G404 -- a load
	known := func() string { return fmt.Sprint("user-", rand.IntN(sessions)) }
	rate, said, err := b.attachFor(ctx, m, conn, &attaches{user: known, resumed: true})
	try.Do(err)
	b.Add(table.AtLeast("sessions that reconnect, 100,000 known", rate, "/s", 10_000, said))
	var n atomic.Int64
	rate, said, err = b.attachFor(ctx, m, conn, &attaches{user: func() string { return fmt.Sprint("new-", n.Add(1)) }})
	try.Do(err)
	b.Add(table.Figure("new sessions that attach", rate, "/s", said))
	return nil
}

// attachFor is how many attached in a second, and what each cost.
func (b *bench) attachFor(ctx context.Context, m *mesh, conn *pgx.Conn, a *attaches) (rate float64, said string, err error) {
	defer try.Catch(&err)
	try.Do(b.DB.Checkpoint(ctx))
	before := try.Get(spentBy(ctx, conn))
	u := try.Get(b.UsingMesh(m.Mesh))
	began, span := time.Now(), min(b.Span/2, attachSpan)
	took := try.Get(a.run(ctx, m.Store.Addr, span))
	rate = float64(len(took)) / time.Since(began).Seconds()
	used := try.Get(u.Each(int64(len(took))))
	after := try.Get(spentBy(ctx, conn))
	slices.Sort(took)
	each := func(n int64) float64 { return float64(n) / float64(len(took)) }
	return rate, fmt.Sprintf("%d callers at %d edges for %s: p50 %s, p99 %s, slowest %s; refused and tried again %d times; for each %.2f transactions, %.0f B of write-ahead log; %s",
		attachCallers, attachEdges, span, ms(took, .5), ms(took, .99), ms(took, 1), a.refused.Load(),
		each(after.transactions-before.transactions), each(after.wal-before.wal), used), nil
}

// spent is what a database has done so far.
type spent struct{ transactions, wal int64 }

// spentBy waits until the server's processes have told what they counted, which they do after a
// second.
func spentBy(ctx context.Context, conn *pgx.Conn) (s spent, err error) {
	if err := pause(ctx, 2*time.Second); err != nil {
		return s, err
	}
	err = conn.QueryRow(ctx, `SELECT xact_commit, (pg_current_wal_insert_lsn() - '0/0')::bigint FROM pg_stat_database WHERE datname = current_database()`).
		Scan(&s.transactions, &s.wal)
	return s, err
}

// attaches is a load of AttachSession.
type attaches struct {
	user    func() string
	resumed bool // each has to be
	refused atomic.Int64
}

func (a *attaches) run(ctx context.Context, store string, span time.Duration) (took []time.Duration, err error) {
	defer try.Catch(&err)
	var edges [attachEdges]meshv1.StoreServiceClient
	for i := range edges {
		conn := try.Get(suite.Dial(store))
		defer func() { _ = conn.Close() }()
		edges[i] = meshv1.NewStoreServiceClient(conn)
	}
	return suite.Closed(ctx, attachCallers, span, func(ctx context.Context, i, n int) error {
		edge := i % attachEdges
		return a.one(ctx, edges[edge], &meshv1.AttachSessionRequest{
			User: a.user(), Name: "phone", EdgeId: fmt.Sprint("edge-", edge), ConnectionId: uint64(n*attachCallers + i + 1),
		})
	})
}

// one attaches, and tries again where it is told to.
func (a *attaches) one(ctx context.Context, edge meshv1.StoreServiceClient, req *meshv1.AttachSessionRequest) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		resp, err := edge.AttachSession(ctx, req)
		if err == nil {
			if a.resumed && (!resp.GetResumed() || len(resp.GetCursors()) != 1 || len(resp.GetFilters()) != 1) {
				return fmt.Errorf("attach of %s: %v", req.GetUser(), resp)
			}
			return nil
		}
		if !code.Retryable(code.Of(err)) {
			return fmt.Errorf("attach: %w", err)
		}
		a.refused.Add(1)
		if err := pause(ctx, attachPause); err != nil {
			return fmt.Errorf("attach: %w", err)
		}
	}
}
