package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// lockClass is the first key of the advisory locks; the second is the shard.
const lockClass = 0x70757368 // "push"

// writer owns one connection, whose backend holds the advisory lock of every shard in owned. Losing
// the connection loses them: nothing can be committed through it any more, which is why owned need
// not be checked against the database.
type writer struct {
	db      *DB
	owner   backend.Owner
	conn    *pgx.Conn
	process process

	mu     sync.Mutex // one owner uses the writer, but DB.Close may come at any time
	owned  map[int]bool
	used   time.Time // the last answer
	failed bool      // of no more use
	closed bool
	arrays arrays // of the batch being sent
}

// OpenWriter makes a connection for a writer and records which backend serves it.
func (d *DB) OpenWriter(ctx context.Context, owner backend.Owner) (backend.Writer, error) {
	ticket, err := d.gate.Try()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	w, err := d.openWriter(ctx, owner)
	o := d.outcomeOf(ctx, err, time.Since(began))
	ticket.Leave(o)
	if o == dbgate.Failed {
		err = unavailable(err)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(errors.New("postgres: closed"), w.conn.Close(ctx))
	}
	d.writers[w] = struct{}{}
	return w, nil
}

func (d *DB) openWriter(ctx context.Context, owner backend.Owner) (*writer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.cfg.Patience)
	defer cancel()
	// Whatever makes an append wait (a slice that is dropped) must give way: the batch is tried
	// again.
	conn, err := d.connect(ctx, "pushmesh-writer", time.Second)
	if err != nil {
		return nil, err
	}
	w := &writer{db: d, owner: owner, conn: conn, owned: map[int]bool{}}
	if err := w.begin(ctx); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return w, nil
}

// connect makes a connection beside the pool, for statements that wait so long for a lock; 0: as
// the server is set.
func (d *DB) connect(ctx context.Context, name string, lock time.Duration) (*pgx.Conn, error) {
	cfg := d.conns.Copy()
	cfg.RuntimeParams["application_name"] = name
	if lock > 0 {
		cfg.RuntimeParams["lock_timeout"] = fmt.Sprint(lock.Milliseconds())
	}
	conn, err := pgx.ConnectConfig(ctx, d.session(cfg))
	if err != nil {
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	return conn, nil
}

// begin checks the server (another one may answer than at the start), records the writer, forgets
// those that are gone, and ends what is left of writers that this store lost.
func (w *writer) begin(ctx context.Context) (err error) {
	if w.process, err = w.db.sound(ctx, w.conn); err != nil {
		return err
	}
	if err := w.db.familiar(ctx, w.conn); err != nil {
		return err
	}
	if err := w.db.endRemains(ctx, w.conn); err != nil {
		return err
	}
	var b pgx.Batch
	record(&b, w.process, w.owner)
	if err := w.conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("postgres: record the writer: %w", err)
	}
	if err := prepare(ctx, w.conn, prepared); err != nil {
		return fmt.Errorf("postgres: prepare: %w", err)
	}
	return nil
}

// recordWriter replaces what is on record of a backend: behind a pooler it may have been that of a
// store that died.
const recordWriter = `INSERT INTO pushmesh.writer (pid, backend_start, store_id, incarnation) VALUES ($1, $2, $3, $4)
	ON CONFLICT (pid, backend_start) DO UPDATE SET store_id = excluded.store_id, incarnation = excluded.incarnation`

// record makes a backend one of a store's writers, which fencing the store ends, and forgets those
// that are gone.
func record(b *pgx.Batch, p process, owner backend.Owner) {
	b.Queue(`DELETE FROM pushmesh.writer AS w WHERE NOT EXISTS (
		SELECT FROM pg_stat_activity AS a WHERE ` + sameBackend + `)`)
	b.Queue(recordWriter, p.pid, p.start, owner.StoreID, int64(owner.Incarnation))
}

// TakeShards takes the locks that are free. Without shards it is a question whether the connection
// still stands.
func (w *writer) TakeShards(ctx context.Context, shards []int) (got []int, err error) {
	err = w.useWhole(ctx, w.db.cfg.Patience, func(ctx context.Context) error {
		got, err = w.takeShards(ctx, shards)
		return err
	})
	return got, err
}

// takeShardsSQL locks the shards whose data is here, and puts their owner on record in the same
// statement: whoever has a lock can be fenced, were it frozen right after.
const takeShardsSQL = `
	WITH here AS MATERIALIZED (SELECT shard FROM pushmesh.shard WHERE shard = ANY($2) AND held),
	locked AS MATERIALIZED (SELECT shard FROM here WHERE pg_try_advisory_lock($1, shard))
	INSERT INTO pushmesh.owner (shard, store_id, incarnation, address) SELECT shard, $3, $4, $5 FROM locked ORDER BY shard
	ON CONFLICT (shard) DO UPDATE SET store_id = excluded.store_id, incarnation = excluded.incarnation,
		address = excluded.address, claimed_at = excluded.claimed_at
	RETURNING shard`

func (w *writer) takeShards(ctx context.Context, shards []int) (got []int, err error) {
	if len(shards) == 0 {
		return nil, w.conn.Ping(ctx)
	}
	var ask []int32
	for _, s := range shards {
		if !w.owned[s] && !slices.Contains(ask, int32(s)) {
			ask = append(ask, int32(s))
		}
	}
	rows, err := w.conn.Query(ctx, takeShardsSQL, int32(lockClass), ask, w.owner.StoreID, int64(w.owner.Incarnation), w.owner.Address)
	var shard int32
	var fresh []int32
	if err := each(rows, err, []any{&shard}, func() { fresh = append(fresh, shard) }); err != nil {
		return nil, err
	}
	for _, s := range fresh {
		w.owned[int(s)] = true
	}
	if err := w.releaseMoved(ctx, fresh); err != nil {
		return nil, err
	}
	for _, s := range shards {
		if w.owned[s] {
			got = append(got, s)
		}
	}
	return got, nil
}

// releaseMoved gives back, of shards just locked, those whose data was moved to another database
// before they were. It is asked after the lock: under it nothing moves.
func (w *writer) releaseMoved(ctx context.Context, locked []int32) error {
	if len(locked) == 0 {
		return nil
	}
	rows, err := w.conn.Query(ctx, `SELECT shard FROM pushmesh.shard WHERE shard = ANY($1) AND NOT held`, locked)
	var shard int
	var moved []int
	if err := each(rows, err, []any{&shard}, func() { moved = append(moved, shard) }); err != nil || len(moved) == 0 {
		return err
	}
	return w.releaseShards(ctx, moved)
}

// ReleaseShards gives shards back: the record first, so that a successor's is never deleted.
func (w *writer) ReleaseShards(ctx context.Context, shards []int) error {
	return w.useWhole(ctx, w.db.cfg.Patience, func(ctx context.Context) error { return w.releaseShards(ctx, shards) })
}

func (w *writer) releaseShards(ctx context.Context, shards []int) error {
	var mine []int32
	for _, s := range shards {
		if w.owned[s] {
			mine = append(mine, int32(s))
		}
	}
	if _, err := w.conn.Exec(ctx, `DELETE FROM pushmesh.owner WHERE shard = ANY($1)`, mine); err != nil {
		return err
	}
	for _, s := range mine {
		delete(w.owned, int(s))
	}
	_, err := w.conn.Exec(ctx, `SELECT pg_advisory_unlock($1, s) FROM unnest($2::int[]) AS s`, int32(lockClass), mine)
	return err
}

// Close gives every shard back. What a failed writer leaves behind is ended by the next one.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.db.mu.Lock()
	delete(w.db.writers, w)
	w.db.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), w.db.cfg.Patience)
	defer cancel()
	if w.failed || w.conn.IsClosed() {
		_ = w.conn.Close(ctx) // it is broken already
		return nil
	}
	var all []int
	for s := range w.owned {
		all = append(all, s)
	}
	err := w.releaseShards(ctx, all)
	if err == nil {
		_, err = w.conn.Exec(ctx, `DELETE FROM pushmesh.writer WHERE pid = $1 AND backend_start = $2`, w.process.pid, w.process.start)
	}
	if err != nil && away(err) {
		err = nil // the database is gone, and the locks with it
	}
	if closeErr := w.conn.Close(ctx); closeErr != nil && err == nil && !away(closeErr) {
		err = closeErr
	}
	return err
}

// use runs f, anything but a commit, on the writer's connection: where that breaks, the writer is
// lost.
func (w *writer) use(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrNotCommitted, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := f(ctx)
	if err == nil {
		w.used = time.Now()
		return nil
	}
	if w.broken(err) {
		w.markLost()
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return fmt.Errorf("postgres: %w", err)
}

// useWhole is use for what takes or gives rights in several statements: cut short by any error,
// what the writer has is not known any more. It is lost, and its rights with its connection.
func (w *writer) useWhole(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	return w.use(ctx, timeout, func(ctx context.Context) error {
		err := f(ctx)
		if err != nil {
			w.markLost()
		}
		return err
	})
}

func (w *writer) usable() error {
	if w.closed {
		return fmt.Errorf("%w: the writer is closed", backend.ErrLost)
	}
	if w.failed || w.conn.IsClosed() {
		w.markLost()
		return fmt.Errorf("%w: the connection is gone", backend.ErrLost)
	}
	return nil
}

// broken reports whether the connection can't be used any more after err.
func (w *writer) broken(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Severity != "ERROR" || w.conn.IsClosed()
	}
	return w.conn.IsClosed() || away(err)
}

// markLost gives the writer up. w.mu is held. Its backend may live on for a while, with locks: the
// next writer ends it.
func (w *writer) markLost() {
	if w.failed {
		return
	}
	w.failed = true
	clear(w.owned)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.conn.Close(ctx) // at once, without a word to a server that may hang
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	delete(w.db.writers, w)
	w.db.remains = append(w.db.remains, w.process)
}

// requires reports whether the writer owns all of these shards.
func (w *writer) requires(shards ...int) error {
	for _, s := range shards {
		if !w.owned[s] {
			return fmt.Errorf("%w: shard %d is not this writer's", backend.ErrLost, s)
		}
	}
	return nil
}
