package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	sessions     = 100_000
	ackRate      = 20_000 // messages a second, of all sessions
	appendRate   = 20_000
	sessionBatch = 500 // cursors that an edge writes at a time
)

// sessionLoad has 100,000 sessions ACK while messages are appended, and compares the appends with
// those before.
func (b *bench) sessionLoad(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	// Held by an edge, as if they had attached: 100,000 calls of AttachSession would take longer
	// than all the rest. A server that made them one by one has analyzed the table meanwhile.
	err = b.DB.Exec(ctx, m.url, fmt.Sprintf(`INSERT INTO pushmesh.session (user_id, name, generation, connection_id, attached_at, expires_at, ttl, edge)
		SELECT 'user-' || i, 'phone', 1, i, 0, 0, 604800000000, 'edge-bench' FROM generate_series(0, %d) AS i`, sessions-1))
	try.Do(errors.Join(err, b.DB.Exec(ctx, m.url, "ANALYZE pushmesh.session"), b.DB.Checkpoint(ctx)))
	without, with := &turn{}, &turn{}
	for range 2 {
		try.Do(errors.Join(b.turn(ctx, m.Mesh, m.url, without, 0), b.turn(ctx, m.Mesh, m.url, with, ackRate)))
	}
	rate := float64(with.acks) / with.span.Seconds()
	if rate < .95*ackRate {
		return fmt.Errorf("only %.0f ACKs a second were written", rate)
	}
	ratio := table.Quantile(with.took, .99) / table.Quantile(without.took, .99)
	each := func(of func(*turn) float64) float64 { return (of(with) - of(without)) / float64(with.acks) }
	cpu := func(name string) float64 { return each(func(t *turn) float64 { return t.cpu[name].Seconds() * 1e6 }) }
	b.Add(table.AtMost("append p99 beside 100,000 sessions that ACK 20,000/s / without them, 20,000/s appended", ratio, "×", 1.2,
		fmt.Sprintf("p99 %s, without %s (p50 %s, %s), 2 turns of %s each with a checkpoint; %.0f ACKs/s written, %d cursors a call",
			ms(with.took, .99), ms(without.took, .99), ms(with.took, .5), ms(without.took, .5), b.Span/2, rate, sessionBatch)),
		table.Figure("CPU of a cursor", cpu("store")+cpu("postgres"), "µs", fmt.Sprintf("store %.2f + postgres %.2f: with ACKs less without", cpu("store"), cpu("postgres"))),
		table.Figure("write-ahead log of a cursor", each(func(t *turn) float64 { return float64(t.wal) }), "B", "with ACKs less without, pages after checkpoints included"))
	return nil
}

// turn is what was measured with ACKs or without, all turns together.
type turn struct {
	took []time.Duration // of appends
	span time.Duration
	acks int64
	wal  int64                    // bytes
	cpu  map[string]time.Duration // by consumer
}

// turn appends for half the span, a checkpoint in the middle, while acks cursors a second are
// written.
func (b *bench) turn(ctx context.Context, m *local.Mesh, url string, t *turn, rate int) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, url))
	defer func() { _ = conn.Close(ctx) }()
	before := try.Get(written(ctx, conn))
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	acked, began := make(chan error, 1), time.Now()
	var acks atomic.Int64
	go func() {
		if rate == 0 {
			acked <- nil
			return
		}
		acked <- ackFor(loaded, m.Store.Addr, &acks)
	}()
	used := b.used(m)
	c := b.checkpointIn(ctx, b.Span/4)
	took, err := b.paced(ctx, m.Router.Addr, b.Span/2)
	t.span += time.Since(began)
	t.acks += acks.Load()
	stop()
	_, faultErr := c.end()
	try.Do(errors.Join(err, <-acked, faultErr))
	t.took = append(t.took, took...)
	after := try.Get(written(ctx, conn))
	t.wal += after - before
	slices.Sort(t.took)
	if t.cpu == nil {
		t.cpu = map[string]time.Duration{}
	}
	for of, now := range b.used(m) {
		t.cpu[of.name] += now - used[of] // 0 for connections that were made meanwhile
	}
	return nil
}

// worker is a process of the server or the store.
type worker struct {
	name string
	pid  int
}

// used is the CPU of each process that handles cursors, so far; those that end meanwhile are left
// out.
func (b *bench) used(m *local.Mesh) map[worker]time.Duration {
	all := map[worker]time.Duration{}
	look := func(name string, pids ...int) {
		for _, pid := range pids {
			if cpu, err := procfs.CPU(pid); err == nil {
				all[worker{name, pid}] = cpu
			}
		}
	}
	look("store", m.Store.PID())
	if pids, err := b.DB.PIDs(); err == nil {
		look("postgres", pids...)
	}
	return all
}

// written is how far the server's write-ahead log has come.
func written(ctx context.Context, conn *pgx.Conn) (bytes int64, err error) {
	err = conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes)
	return bytes, err
}

// paced appends at a fixed rate and says how long answers took.
func (b *bench) paced(ctx context.Context, router string, span time.Duration) (_ []time.Duration, err error) {
	defer try.Catch(&err)
	const frame = 16
	h := try.Get(firehose.Dial(ctx, firehose.Config{
		Addr: router, Topics: names("room", frame), Size: payload, Window: 1024, Rate: appendRate / frame,
	}))
	return h.Run(ctx, span)
}

// ackFor writes cursors at the rate of the ACKs, one message each, until ctx ends. Sessions take
// turns.
func ackFor(ctx context.Context, store string, acks *atomic.Int64) (err error) {
	defer try.Catch(&err)
	conn := try.Get(suite.Dial(store))
	defer func() { _ = conn.Close() }()
	api := meshv1.NewStoreServiceClient(conn)
	tick := time.NewTicker(time.Second * sessionBatch / ackRate)
	defer tick.Stop()
	calls := make(chan struct{}, 8) // an edge has several under way
	failed := make(chan error, 1)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			for range cap(calls) {
				calls <- struct{}{}
			}
			select {
			case err := <-failed:
				return err
			default:
				return nil
			}
		case err := <-failed:
			return err
		case <-tick.C:
		}
		calls <- struct{}{}
		go func() {
			defer func() { <-calls }()
			if err := ackBatch(context.WithoutCancel(ctx), api, n); err != nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			acks.Add(sessionBatch)
		}()
	}
}

func ackBatch(ctx context.Context, api meshv1.StoreServiceClient, n int) error {
	req := &meshv1.WriteCursorsRequest{}
	for i := range sessionBatch {
		s := (n*sessionBatch + i) % sessions
		req.Writes = append(req.Writes, &meshv1.SessionWrite{User: fmt.Sprintf("user-%d", s), Name: "phone", Generation: 1, Cursors: []*meshv1.SessionCursor{
			{Topic: fmt.Sprintf("room/%d", s%16), Epoch: 1, Floor: uint64(n*sessionBatch/sessions + 1)},
		}})
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := api.WriteCursors(ctx, req)
	if err != nil {
		return fmt.Errorf("write cursors: %w", err)
	}
	for _, c := range resp.GetCodes() {
		if c != wirev1.Code_CODE_OK {
			return fmt.Errorf("write cursors: %v", c)
		}
	}
	return nil
}
