package postgres

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
)

// claimLock is how long a take waits for another run's commit under way before it ends that run's
// backend. Nothing keeps a commit: it is one statement that waits for nobody but who deletes its
// run; but a server may be slow, and a store may be frozen between two parts of what it sends.
const claimLock = 500 * time.Millisecond

// claimRun is a row of pushmesh.claim_run and the connection that it commits on. Its backend is
// recorded as one of the store's writers, so that fencing the store ends it.
type claimRun struct {
	db      *DB
	conn    *pgx.Conn
	process process
	id      int64

	mu     sync.Mutex // one owner uses the run, but DB.Close may come at any time
	failed bool       // of no more use
	closed bool
	arrays arrays // of the commit being sent
}

// OpenClaims makes a connection for a run and records it. Runs whose backends are gone are
// forgotten.
func (d *DB) OpenClaims(ctx context.Context, owner backend.Owner) (backend.ClaimRun, error) {
	if err := d.Away(); err != nil {
		return nil, err
	}
	ticket, err := d.gate.Try()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	r, err := d.openClaims(ctx, owner)
	ticket.Leave(d.outcomeOf(ctx, err, time.Since(began)))
	if err != nil {
		return nil, claimsLost(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(errors.New("postgres: closed"), r.conn.Close(ctx))
	}
	d.claims[r] = struct{}{}
	return r, nil
}

func (d *DB) openClaims(ctx context.Context, owner backend.Owner) (*claimRun, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.cfg.Patience)
	defer cancel()
	conn, err := d.connect(ctx, "pushmesh-claims", claimLock)
	if err != nil {
		return nil, err
	}
	r := &claimRun{db: d, conn: conn}
	if err := r.begin(ctx, owner); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return r, nil
}

// begin checks the server as a writer does: on one that was rewound tokens could be given twice.
func (r *claimRun) begin(ctx context.Context, owner backend.Owner) (err error) {
	if r.process, err = r.db.sound(ctx, r.conn); err != nil {
		return err
	}
	if err := r.db.familiar(ctx, r.conn); err != nil {
		return err
	}
	if err := r.db.endRemains(ctx, r.conn); err != nil {
		return err
	}
	var b pgx.Batch
	record(&b, r.process, owner)
	b.Queue(`DELETE FROM pushmesh.claim_run WHERE id IN (SELECT r.id FROM pushmesh.claim_run AS r WHERE NOT EXISTS (
		SELECT FROM pg_stat_activity AS a WHERE a.pid = r.pid AND coalesce(a.backend_start, r.backend_start) = r.backend_start) FOR UPDATE SKIP LOCKED)`)
	b.Queue(`INSERT INTO pushmesh.claim_run (store_id, incarnation, pid, backend_start) VALUES ($1, $2, $3, $4) RETURNING id`,
		owner.StoreID, int64(owner.Incarnation), r.process.pid, r.process.start).QueryRow(func(row pgx.Row) error { return row.Scan(&r.id) })
	if err := r.conn.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("postgres: record the run of claims: %w", err)
	}
	if err := prepare(ctx, r.conn, claimStatements); err != nil {
		return fmt.Errorf("postgres: prepare: %w", err)
	}
	return nil
}

// Take gives the shards to this run in one statement, and then reads their places: from then on
// nobody else can change them.
func (r *claimRun) Take(ctx context.Context, shards []int, force bool, visit func(backend.ClaimPlace)) (taken []backend.ClaimShard, now uint64, err error) {
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

// take ends the backends of runs that don't let go, and tries again, for as long as the database
// has patience.
func (r *claimRun) take(ctx context.Context, shards []int, force bool) ([]backend.ClaimShard, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.db.cfg.Patience)
	defer cancel()
	for {
		taken, err := r.takeOnce(ctx, shards, force)
		if pgCode(err) != lockNotAvailable {
			return taken, err
		}
		if !force { // another takes these shards at this moment
			return nil, fmt.Errorf("%w: %w", backend.ErrShardTaken, err)
		}
		if _, err := r.conn.Exec(ctx, `
			SELECT pg_terminate_backend(r.pid, $3) FROM pushmesh.claim_run AS r JOIN pg_stat_activity AS a ON a.pid = r.pid AND a.backend_start = r.backend_start
			WHERE r.id <> $1 AND r.id IN (SELECT run FROM pushmesh.claim_shard WHERE shard = ANY($2))`, r.id, shards, claimLock.Milliseconds()); err != nil {
			return nil, fmt.Errorf("end the run that has the claims: %w", err)
		}
	}
}

// lockNotAvailable is lock_not_available: lock_timeout passed.
const lockNotAvailable = "55P03"

func (r *claimRun) takeOnce(ctx context.Context, shards []int, force bool) (taken []backend.ClaimShard, err error) {
	var outcome string
	var shard int
	var next int64
	rows, err := r.conn.Query(ctx, `SELECT outcome, shard, next FROM pushmesh.claims_take($1, $2, $3)`, r.id, shards, force)
	last := "ok"
	if err := each(rows, err, []any{&outcome, &shard, &next}, func() {
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

// Give lets go of what is still this run's.
func (r *claimRun) Give(ctx context.Context, shards []int) error {
	return r.use(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, r.db.cfg.Patience)
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
func (r *claimRun) Commit(ctx context.Context, c *backend.ClaimChanges) (now uint64, err error) {
	err = r.use(ctx, func() error {
		began := time.Now()
		limit, cancel := context.WithTimeout(ctx, r.db.cfg.Patience)
		defer cancel()
		now, err = r.commit(limit, c)
		switch {
		case errors.Is(err, backend.ErrFenced):
		case len(c.Put)+len(c.Delete) > 0:
			r.db.noted(limit, err, time.Since(began))
		default: // it says nothing about writing
			r.db.gate.Note(r.db.outcomeOf(limit, err, time.Since(began)))
		}
		return err
	})
	return now, err
}

func (r *claimRun) commit(ctx context.Context, c *backend.ClaimChanges) (now uint64, err error) {
	err = pipelined(ctx, r.conn, r.db.stall(), func(p *pgconn.Pipeline) {
		name, params := r.statement(c)
		p.SendQueryPrepared(name, params, binaryForm, binaryForm)
	}, func(_ int, row [][]byte) {
		now = binary.BigEndian.Uint64(row[0])
	})
	if err == nil && now == 0 {
		err = backend.ErrFenced
	}
	return now, err
}

// Close ends the run; what a failed one leaves behind is forgotten once its backend is gone.
func (r *claimRun) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.db.mu.Lock()
	delete(r.db.claims, r)
	r.db.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), r.db.cfg.Patience)
	defer cancel()
	if !r.failed && !r.conn.IsClosed() {
		var b pgx.Batch
		b.Queue(`DELETE FROM pushmesh.claim_run WHERE id = $1`, r.id)
		b.Queue(`DELETE FROM pushmesh.writer WHERE pid = $1 AND backend_start = $2`, r.process.pid, r.process.start)
		_ = r.conn.SendBatch(ctx, &b).Close() // without its backend the run is over as well
	}
	if err := r.conn.Close(ctx); err != nil && !away(err) {
		return fmt.Errorf("postgres: close a run of claims: %w", err)
	}
	return nil
}

// use runs f on the run's connection. Whatever it fails with but ErrTaken ends the run.
func (r *claimRun) use(ctx context.Context, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.failed {
		return claimsLost(errors.New("the run has ended"))
	}
	if err := ctx.Err(); err != nil {
		r.lose()
		return claimsLost(err)
	}
	err := f()
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

// lose gives the run up. r.mu is held. Its backend may live on for a while: the next run of this
// store ends it.
func (r *claimRun) lose() {
	r.failed = true
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.conn.Close(ctx) // at once, without a word to a server that may hang
	r.db.mu.Lock()
	defer r.db.mu.Unlock()
	delete(r.db.claims, r)
	r.db.remains = append(r.db.remains, r.process)
}

// claimsLost is what callers see of whatever went wrong.
func claimsLost(err error) error {
	if guarded, ok := errors.AsType[*code.Error](err); ok && guarded.Code == wirev1.Code_CODE_UNAVAILABLE {
		return err
	}
	return fmt.Errorf("%w: postgres: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "claims can't be changed now"), err)
}
