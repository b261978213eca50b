package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// claimWriter is a row of claim_run: whoever takes shards from it deletes that first, and every
// commit looks for it in its own transaction.
type claimWriter struct {
	b  *Backend
	id int64

	mu    sync.Mutex
	ended bool // of no more use
}

// OpenClaims makes a writer.
func (b *Backend) OpenClaims(ctx context.Context, owner backend.Owner) (backend.ClaimWriter, error) {
	if err := b.Away(); err != nil {
		return nil, err
	}
	res, err := b.write.ExecContext(ctx, "INSERT INTO claim_run (store_id, incarnation) VALUES (?, ?)", owner.StoreID, int64(owner.Incarnation))
	if err != nil {
		b.noted(err)
		return nil, claimsLost(err)
	}
	id, err := res.LastInsertId()
	if err != nil {
		return nil, claimsLost(err)
	}
	return &claimWriter{b: b, id: id}, nil
}

// Take takes shards in one transaction, and then reads their places: from then on nobody else can
// change them.
func (r *claimWriter) Take(ctx context.Context, shards []int, force bool, visit func(backend.ClaimPlace)) (taken []backend.ClaimShard, now uint64, err error) {
	shards = slices.Compact(slices.Sorted(slices.Values(shards)))
	err = r.use(ctx, func() error {
		if err := r.change(ctx, func(tx *sql.Tx) error {
			taken, err = r.take(ctx, tx, shards, force)
			return err
		}); err != nil {
			return err
		}
		if err := r.b.readClaims(ctx, shards, visit); err != nil {
			return err
		}
		now, err = r.prove(ctx)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return taken, now, nil
}

func (r *claimWriter) take(ctx context.Context, tx *sql.Tx, shards []int, force bool) ([]backend.ClaimShard, error) {
	taken, others, err := r.holders(ctx, tx, shards)
	switch {
	case err != nil:
		return nil, err
	case len(taken) != len(shards):
		return nil, fmt.Errorf("%d shards of claims asked for, %d found", len(shards), len(taken))
	case len(others) > 0 && !force:
		return nil, backend.ErrShardTaken
	}
	for run := range others {
		if _, err := tx.ExecContext(ctx, "DELETE FROM claim_run WHERE id = ?", run); err != nil {
			return nil, err
		}
	}
	_, err = tx.ExecContext(ctx, "UPDATE claim_shard SET run = ?, next = next + ? WHERE shard IN (SELECT value FROM json_each(?))", r.id, int64(backend.ClaimNumbers), list(shards))
	return taken, err
}

// holders says what numbers shards go on with, and which other writers have any of them.
func (r *claimWriter) holders(ctx context.Context, tx *sql.Tx, shards []int) (all []backend.ClaimShard, others map[int64]bool, err error) {
	others = map[int64]bool{}
	all, err = collect(ctx, tx, func(rows *sql.Rows) (s backend.ClaimShard, err error) {
		var run sql.NullInt64
		err = rows.Scan(&s.Shard, &s.Next, &run)
		if run.Valid && run.Int64 != r.id {
			others[run.Int64] = true
		}
		return s, err
	}, `SELECT s.shard, s.next, r.id FROM claim_shard AS s LEFT JOIN claim_run AS r ON r.id = s.run
		WHERE s.shard IN (SELECT value FROM json_each(?)) ORDER BY s.shard`, list(shards))
	return all, others, err
}

// list is shards as json_each reads them.
func list(shards []int) string { return strings.ReplaceAll(fmt.Sprint(shards), " ", ",") }

// Give releases what is still this writer's.
func (r *claimWriter) Give(ctx context.Context, shards []int) error {
	return r.use(ctx, func() error {
		return r.change(ctx, func(tx *sql.Tx) error {
			for _, shard := range shards {
				if _, err := tx.ExecContext(ctx, "UPDATE claim_shard SET run = NULL WHERE shard = ? AND run = ?", shard, r.id); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

const claimColumns = "shard, seq, resource, owner, priority, token, ttl, joined_at, granted_at, expires_at, offered_until, node, incarnation, conn, bound, gone_at"

// putClaim replaces what has the key.
var putClaim = "INSERT OR REPLACE INTO claim_place (" + claimColumns + ") VALUES (?" + strings.Repeat(", ?", strings.Count(claimColumns, ",")) + ")"

// Commit brings the host's clock along.
func (r *claimWriter) Commit(ctx context.Context, c *backend.ClaimChanges) (now uint64, err error) {
	err = r.use(ctx, func() error {
		if len(c.Put)+len(c.Delete) == 0 {
			now, err = r.prove(ctx)
			return err
		}
		// A local transaction is short. Were it cut by ctx, it would be as well.
		ctx := context.WithoutCancel(ctx)
		return r.change(ctx, func(tx *sql.Tx) error {
			now = uint64(time.Now().UnixMicro())
			return putAndDelete(ctx, tx, c)
		})
	})
	return now, err
}

func putAndDelete(ctx context.Context, tx *sql.Tx, c *backend.ClaimChanges) error {
	put, err := tx.PrepareContext(ctx, putClaim)
	if err != nil {
		return err
	}
	defer func() { _ = put.Close() }() // with the transaction
	for i := range c.Put {
		p := &c.Put[i]
		if _, err := put.ExecContext(ctx, p.Shard, int64(p.Seq), []byte(p.Resource), []byte(p.Owner), p.Priority, int64(p.Token), int64(p.TTL), int64(p.JoinedAt), int64(p.GrantedAt),
			int64(p.ExpiresAt), int64(p.OfferedUntil), []byte(p.Node), int64(p.Incarnation), int64(p.Conn), p.Bound, int64(p.GoneAt)); err != nil {
			return err
		}
	}
	for _, k := range c.Delete {
		if _, err := tx.ExecContext(ctx, "DELETE FROM claim_place WHERE shard = ? AND seq = ?", k.Shard, int64(k.Seq)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) readClaims(ctx context.Context, shards []int, visit func(backend.ClaimPlace)) error {
	rows, err := b.read.QueryContext(ctx, "SELECT "+claimColumns+" FROM claim_place WHERE shard IN (SELECT value FROM json_each(?)) ORDER BY shard, seq", list(shards))
	if err != nil {
		return err
	}
	return scan(rows, func() error {
		var p backend.ClaimPlace
		// SQLite's integers are signed
		var seq, token, ttl, joined, granted, expires, offered, incarnation, conn, gone int64
		var resource, owner, node sql.RawBytes
		err := rows.Scan(&p.Shard, &seq, &resource, &owner, &p.Priority, &token, &ttl, &joined, &granted, &expires, &offered, &node, &incarnation, &conn, &p.Bound, &gone)
		if err == nil {
			p.Seq, p.Token, p.TTL, p.JoinedAt, p.GrantedAt, p.ExpiresAt, p.OfferedUntil = uint64(seq), uint64(token), uint64(ttl), uint64(joined), uint64(granted), uint64(expires), uint64(offered)
			p.Incarnation, p.Conn, p.GoneAt = uint64(incarnation), uint64(conn), uint64(gone)
			p.Resource, p.Owner, p.Node = string(resource), string(owner), string(node)
			visit(p)
		}
		return err
	})
}

// prove returns the time if the writer is not fenced.
func (r *claimWriter) prove(ctx context.Context) (now uint64, err error) {
	now = uint64(time.Now().UnixMicro())
	return now, r.good(ctx, r.b.read)
}

func (r *claimWriter) good(ctx context.Context, q querier) error {
	var id int64
	err := q.QueryRowContext(ctx, "SELECT id FROM claim_run WHERE id = ?", r.id).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return backend.ErrFenced
	}
	return err
}

// change runs f in a write transaction, if the writer is not fenced.
func (r *claimWriter) change(ctx context.Context, f func(tx *sql.Tx) error) error {
	if err := r.b.Away(); err != nil {
		return err
	}
	err := inTx(ctx, r.b.write, func(tx *sql.Tx) error {
		if err := r.good(ctx, tx); err != nil {
			return err
		}
		return f(tx)
	})
	r.b.noted(err)
	return err
}

// use runs f. Any error but ErrShardTaken ends the writer.
func (r *claimWriter) use(ctx context.Context, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return claimsLost(errors.New("the writer has ended"))
	}
	err := ctx.Err()
	if err == nil {
		err = f()
	}
	switch {
	case err == nil, errors.Is(err, backend.ErrShardTaken):
		return err
	}
	r.ended = true
	if errors.Is(err, backend.ErrFenced) {
		return err
	}
	return errors.Join(claimsLost(err), r.forget())
}

// forget deletes the writer's row.
func (r *claimWriter) forget() error {
	_, err := r.b.write.ExecContext(context.Background(), "DELETE FROM claim_run WHERE id = ?", r.id)
	return err
}

// Close ends the writer.
func (r *claimWriter) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	r.ended = true
	if err := r.forget(); err != nil && r.b.write.PingContext(context.Background()) == nil {
		// a file that is closed forgets it when it is opened
		return fmt.Errorf("sqlite: end a writer of claims: %w", err)
	}
	return nil
}

// claimsLost is what callers see of whatever went wrong.
func claimsLost(err error) error {
	if _, ok := errors.AsType[*code.Error](err); ok {
		return err
	}
	return fmt.Errorf("%w: sqlite: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "claims can't be changed now"), err)
}
