// Package claims keeps who holds and who waits for resources in Postgres, for the store that took
// their shards.
package claims

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// claimLock is how long a take waits for another writer's commit under way before it ends that
// writer's backend. Nothing delays a commit: it is one statement that waits only for a deletion of
// its writer's row; but a server may be slow, and a store may be frozen between two parts of what
// it sends.
const claimLock = 500 * time.Millisecond

// Claims of a database.
type Claims struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Claims { return &Claims{s} }

// writer is a row of pushmesh.claim_run and the connection that it commits on. Its backend is
// recorded as one of the store's writers, so that fencing the store ends it.
type writer struct {
	server *server.Server
	conn   *server.Conn
	id     int64

	mu     sync.Mutex // one owner uses the writer, but DB.Close may come at any time
	failed bool       // of no more use
	closed bool
	arrays server.Arrays // of the commit being sent
}

// OpenClaims makes a connection for a writer and records it. Writers whose backends are gone are
// forgotten. The server is checked as for the log: one that was rewound could give tokens twice.
func (d *Claims) OpenClaims(ctx context.Context, owner backend.Owner) (backend.ClaimWriter, error) {
	if err := d.server.Away(); err != nil {
		return nil, err
	}
	r := &writer{server: d.server}
	var err error
	r.conn, err = d.server.OpenWriting(ctx, server.Writing{
		Name: "pushmesh-claims", Owner: owner, Lock: claimLock, Statements: claimStatements,
		Also: func(c *server.Conn, b *pgx.Batch) {
			b.Queue(`DELETE FROM pushmesh.claim_run WHERE id IN (SELECT r.id FROM pushmesh.claim_run AS r WHERE NOT EXISTS (
				SELECT FROM pg_stat_activity AS a WHERE a.pid = r.pid AND coalesce(a.backend_start, r.backend_start) = r.backend_start) FOR UPDATE SKIP LOCKED)`)
			pid, start := c.Backend()
			b.Queue(`INSERT INTO pushmesh.claim_run (store_id, incarnation, pid, backend_start) VALUES ($1, $2, $3, $4) RETURNING id`,
				owner.StoreID, int64(owner.Incarnation), pid, start).QueryRow(func(row pgx.Row) error { return row.Scan(&r.id) })
		},
	})
	if err != nil {
		return nil, claimsLost(err)
	}
	if err := r.conn.Own(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// Take gives the shards to this writer in one statement, and then reads their places: from then on
// nobody else can change them.
func (r *writer) Take(ctx context.Context, shards []int, force bool, visit func(backend.ClaimPlace)) (taken []backend.ClaimShard, now uint64, err error) {
	shards = slices.Compact(slices.Sorted(slices.Values(shards)))
	err = r.use(ctx, func() error {
		if taken, err = r.take(ctx, shards, force); err == nil {
			now, err = r.load(ctx, shards, visit)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return taken, now, nil
}

// take ends the backends of writers that don't release them, and tries again, for as long as the
// database has patience.
func (r *writer) take(ctx context.Context, shards []int, force bool) ([]backend.ClaimShard, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.server.Config.Patience)
	defer cancel()
	for {
		taken, err := r.takeOnce(ctx, shards, force)
		if server.SQLState(err) != server.LockNotAvailable {
			return taken, err
		}
		if !force { // another takes these shards at this moment
			return nil, fmt.Errorf("%w: %w", backend.ErrShardTaken, err)
		}
		if _, err := r.conn.Exec(ctx, `
			SELECT pg_terminate_backend(r.pid, $3) FROM pushmesh.claim_run AS r JOIN pg_stat_activity AS a ON a.pid = r.pid AND a.backend_start = r.backend_start
			WHERE r.id <> $1 AND r.id IN (SELECT run FROM pushmesh.claim_shard WHERE shard = ANY($2))`, r.id, shards, claimLock.Milliseconds()); err != nil {
			return nil, fmt.Errorf("end the writer that has the claims: %w", err)
		}
	}
}

func (r *writer) takeOnce(ctx context.Context, shards []int, force bool) (taken []backend.ClaimShard, err error) {
	var outcome string
	var shard int
	var next int64
	rows, err := r.conn.Query(ctx, `SELECT outcome, shard, next FROM pushmesh.claims_take($1, $2, $3)`, r.id, shards, force)
	last := "ok"
	if err := server.Each(rows, err, []any{&outcome, &shard, &next}, func() {
		taken, last = append(taken, backend.ClaimShard{Shard: shard, Next: uint64(next)}), outcome
	}); err != nil {
		return nil, err
	}
	switch {
	case last == "fenced":
		return nil, backend.ErrFenced
	case last == "taken":
		return nil, backend.ErrShardTaken
	case len(taken) != len(shards):
		return nil, fmt.Errorf("%d shards of claims asked for, %d found", len(shards), len(taken))
	}
	slices.SortFunc(taken, func(a, b backend.ClaimShard) int { return cmp.Compare(a.Shard, b.Shard) })
	return taken, nil
}

// Give releases what is still this writer's.
func (r *writer) Give(ctx context.Context, shards []int) error {
	return r.use(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, r.server.Config.Patience)
		defer cancel()
		var mine bool
		err := r.conn.QueryRow(ctx, `
			WITH held AS (SELECT shard FROM pushmesh.claim_shard WHERE shard = ANY($2) AND run = $1 ORDER BY shard FOR UPDATE),
			given AS (UPDATE pushmesh.claim_shard SET run = NULL WHERE shard IN (SELECT shard FROM held) AND run = $1)
			SELECT EXISTS (SELECT FROM pushmesh.claim_run WHERE id = $1)`, r.id, shards).Scan(&mine)
		if err == nil && !mine {
			return backend.ErrFenced
		}
		return err
	})
}

// Commit is one round trip.
func (r *writer) Commit(ctx context.Context, c *backend.ClaimChanges) (now uint64, err error) {
	err = r.use(ctx, func() error {
		began := time.Now()
		limit, cancel := context.WithTimeout(ctx, r.server.Config.Patience)
		defer cancel()
		now, err = r.commit(limit, c)
		switch {
		case errors.Is(err, backend.ErrFenced):
		case len(c.Put)+len(c.Delete) > 0:
			r.server.NoteWrite(limit, err, time.Since(began))
		default: // it says nothing about writing
			r.server.NoteRead(limit, err, time.Since(began))
		}
		return err
	})
	return now, err
}

func (r *writer) commit(ctx context.Context, c *backend.ClaimChanges) (now uint64, err error) {
	err = r.conn.Pipelined(ctx, r.server.Stall(), func(p *pgconn.Pipeline) {
		name, params := r.statement(c)
		p.SendQueryPrepared(name, params, server.BinaryForm, server.BinaryForm)
	}, func(_ int, row [][]byte) {
		now = binary.BigEndian.Uint64(row[0])
	})
	if err == nil && now == 0 {
		err = backend.ErrFenced
	}
	return now, err
}

// Close ends the writer; what a failed one leaves behind is forgotten once its backend is gone.
func (r *writer) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.conn.End(func(ctx context.Context) error {
		_, err := r.conn.Exec(ctx, `DELETE FROM pushmesh.claim_run WHERE id = $1`, r.id)
		return err
	})
}

// use runs f on the writer's connection. Any error but ErrShardTaken ends the writer.
func (r *writer) use(ctx context.Context, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.failed {
		return claimsLost(errors.New("the writer has ended"))
	}
	if err := ctx.Err(); err != nil {
		r.lose()
		return claimsLost(err)
	}
	err := f()
	if err == nil {
		err = server.Replicated(r.conn.PgConn())
	}
	switch {
	case err == nil, errors.Is(err, backend.ErrShardTaken):
		return err
	}
	r.lose()
	if errors.Is(err, backend.ErrFenced) {
		return err
	}
	return claimsLost(err)
}

// lose gives the writer up. r.mu is held.
func (r *writer) lose() {
	r.failed = true
	r.conn.Lose()
}

// claimsLost is what callers see of whatever went wrong.
func claimsLost(err error) error {
	if guarded, ok := errors.AsType[*code.Error](err); ok && guarded.Code == wirev1.Code_CODE_UNAVAILABLE {
		return err
	}
	return fmt.Errorf("%w: postgres: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, server.RetryAfter, "claims can't be changed now"), err)
}
