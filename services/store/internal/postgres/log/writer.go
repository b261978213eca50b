package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// LockClass is the first key of the advisory locks; the second is the shard.
const LockClass = 0x70757368 // "push"

// Writer owns one connection, whose backend holds the advisory lock of every shard in owned. Losing
// the connection loses them: nothing can be committed through it any more, which is why owned need
// not be checked against the database.
type Writer struct {
	finder // on Conn: neither readers nor whoever else waits for the pool delay an append
	log    *Log
	owner  backend.Owner
	Conn   *server.Conn

	mu     sync.Mutex // one owner uses the writer, but DB.Close may come at any time
	owned  map[int]backend.Hold
	used   time.Time // the last answer
	failed bool      // of no more use
	closed bool
	arrays server.Arrays // of the batch being sent
}

// OpenWriter makes a connection for a writer and records which backend serves it. Whatever makes an
// append wait (a slice that is dropped) must give way: the batch is tried again.
func (l *Log) OpenWriter(ctx context.Context, owner backend.Owner) (backend.Writer, error) {
	conn, err := l.server.OpenWriting(ctx, server.Writing{Name: "pushmesh-writer", Owner: owner, Lock: time.Second, Statements: prepared})
	if err != nil {
		return nil, err
	}
	w := &Writer{log: l, owner: owner, Conn: conn, owned: map[int]backend.Hold{}}
	w.finder = finder{w.lend, w.lend}
	if err := conn.Own(ctx, w); err != nil {
		return nil, err
	}
	return w, nil
}

// TakeShards takes the locks that are free. Without shards it is a question whether the connection
// still stands.
func (w *Writer) TakeShards(ctx context.Context, shards []int) (got []int, err error) {
	err = w.useWhole(ctx, w.log.server.Config.Patience, func(ctx context.Context) error {
		got, err = w.takeShards(ctx, shards)
		return err
	})
	return got, err
}

// takeShardsSQL locks the shards whose data is here, and puts their owner on record in the same
// statement: whoever has a lock can be fenced, were it frozen right after. claimed_at stays where
// the record is this owner's own: then nobody took the shard since, for that would have put another
// one in its place, and giving it back removes it.
const takeShardsSQL = `
	WITH here AS MATERIALIZED (SELECT shard FROM pushmesh.shard WHERE shard = ANY($2) AND held),
	locked AS MATERIALIZED (SELECT shard FROM here WHERE pg_try_advisory_lock($1, shard))
	INSERT INTO pushmesh.owner AS o (shard, store_id, incarnation, address) SELECT shard, $3, $4, $5 FROM locked ORDER BY shard
	ON CONFLICT (shard) DO UPDATE SET store_id = excluded.store_id, incarnation = excluded.incarnation, address = excluded.address,
		claimed_at = CASE WHEN o.store_id = excluded.store_id AND o.incarnation = excluded.incarnation THEN o.claimed_at ELSE excluded.claimed_at END
	RETURNING shard, claimed_at`

func (w *Writer) takeShards(ctx context.Context, shards []int) (got []int, err error) {
	if len(shards) == 0 {
		return nil, w.Conn.Ping(ctx)
	}
	var ask []int32
	for _, s := range shards {
		if w.owned[s] == "" && !slices.Contains(ask, int32(s)) {
			ask = append(ask, int32(s))
		}
	}
	rows, err := w.Conn.Query(ctx, takeShardsSQL, int32(LockClass), ask, w.owner.StoreID, int64(w.owner.Incarnation), w.owner.Address)
	var shard int32
	var since time.Time
	var fresh []int32
	if err := server.Each(rows, err, []any{&shard, &since}, func() {
		fresh = append(fresh, shard)
		w.owned[int(shard)] = backend.Hold(fmt.Sprintf("%s/%d", w.Conn.At(), since.UnixMicro()))
	}); err != nil {
		return nil, err
	}
	if err := w.settleHolds(ctx, fresh); err != nil {
		return nil, err
	}
	for _, s := range shards {
		if w.owned[s] != "" {
			got = append(got, s)
		}
	}
	return got, nil
}

// settleHolds adds their epochs to the holds of shards just locked, and gives back those whose data
// was moved to another database before they were. It is asked after the lock: under it nothing
// moves, and no epoch begins.
func (w *Writer) settleHolds(ctx context.Context, locked []int32) error {
	if len(locked) == 0 {
		return nil
	}
	rows, err := w.Conn.Query(ctx, `SELECT shard, epoch, held FROM pushmesh.shard WHERE shard = ANY($1)`, locked)
	var shard int
	var epoch int64
	var held bool
	var moved []int
	if err := server.Each(rows, err, []any{&shard, &epoch, &held}, func() {
		w.owned[shard] += backend.Hold(fmt.Sprintf("/%d", epoch))
		if !held {
			moved = append(moved, shard)
		}
	}); err != nil || len(moved) == 0 {
		return err
	}
	return w.releaseShards(ctx, moved)
}

// Hold is of the server and its timeline, when the shard was taken first, and its epoch.
func (w *Writer) Hold(shard int) backend.Hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owned[shard]
}

// ReleaseShards gives shards back: the record first, so that a successor's is never deleted.
func (w *Writer) ReleaseShards(ctx context.Context, shards []int) error {
	return w.useWhole(ctx, w.log.server.Config.Patience, func(ctx context.Context) error { return w.releaseShards(ctx, shards) })
}

func (w *Writer) releaseShards(ctx context.Context, shards []int) error {
	var mine []int32
	for _, s := range shards {
		if w.owned[s] != "" {
			mine = append(mine, int32(s))
		}
	}
	if _, err := w.Conn.Exec(ctx, `DELETE FROM pushmesh.owner WHERE shard = ANY($1)`, mine); err != nil {
		return err
	}
	for _, s := range mine {
		delete(w.owned, int(s))
	}
	_, err := w.Conn.Exec(ctx, `SELECT pg_advisory_unlock($1, s) FROM unnest($2::int[]) AS s`, int32(LockClass), mine)
	return err
}

// Close gives every shard back. What a failed writer leaves behind is ended by the next one.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.Conn.End(func(ctx context.Context) error {
		return w.releaseShards(ctx, slices.Collect(maps.Keys(w.owned)))
	})
}

// use runs f, anything but a commit, on the writer's connection: where that breaks, the writer is
// lost.
func (w *Writer) use(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
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
	lost := err != nil && w.broken(err)
	if err == nil {
		w.used = time.Now()
		err = server.Replicated(w.Conn.PgConn())
		lost = err != nil // what it took may be gone with this server
	}
	switch {
	case err == nil:
		return nil
	case lost:
		w.markLost()
		return fmt.Errorf("%w: postgres: %w", backend.ErrLost, err)
	}
	return fmt.Errorf("postgres: %w", err)
}

// useWhole is use for what takes or gives rights in several statements: cut short by any error,
// what the writer has is not known any more. It is lost, and its rights with its connection.
func (w *Writer) useWhole(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	return w.use(ctx, timeout, func(ctx context.Context) error {
		err := f(ctx)
		if err != nil {
			w.markLost()
		}
		return err
	})
}

func (w *Writer) usable() error {
	if w.closed {
		return fmt.Errorf("%w: the writer is closed", backend.ErrLost)
	}
	if w.failed || w.Conn.IsClosed() {
		w.markLost()
		return fmt.Errorf("%w: the connection is gone", backend.ErrLost)
	}
	return nil
}

// broken reports whether the connection can't be used any more after err.
func (w *Writer) broken(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Severity != "ERROR" || w.Conn.IsClosed()
	}
	return w.Conn.IsClosed() || server.Unreachable(err)
}

// markLost gives the writer up. w.mu is held. Its backend may live on for a while, with locks: the
// next writer ends it.
func (w *Writer) markLost() {
	if w.failed {
		return
	}
	w.failed = true
	clear(w.owned)
	w.Conn.Lose()
}

// requires reports whether the writer owns all of these shards.
func (w *Writer) requires(shards ...int) error {
	for _, s := range shards {
		if w.owned[s] == "" {
			return fmt.Errorf("%w: shard %d is not this writer's", backend.ErrLost, s)
		}
	}
	return nil
}
