package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// owners says which writer owns which shard. One process has the file, so its memory is enough.
type owners struct {
	mu     sync.Mutex
	shards map[int]*Writer
	turns  map[int]turn
	last   int // number of a turn
}

// turn is for how long one owner had a shard, with whatever writers, and nobody else.
type turn struct {
	owner  backend.Owner
	number int
}

func (o *owners) init() { o.shards, o.turns = map[int]*Writer{}, map[int]turn{} }

func (o *owners) claim(w *Writer, shards []int) (got []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		if have := o.shards[shard]; have == nil || have == w {
			o.shards[shard] = w
			got = append(got, shard)
			if o.turns[shard].owner != w.owner {
				o.last++
				o.turns[shard] = turn{w.owner, o.last}
			}
		}
	}
	return got
}

func (o *owners) release(w *Writer, shards []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, shard := range shards {
		if o.shards[shard] == w {
			delete(o.shards, shard)
		}
	}
}

func (o *owners) owns(w *Writer, shard int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shards[shard] == w
}

// hold of a writer's shard.
func (o *owners) hold(w *Writer, shard int) backend.Hold {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shards[shard] != w {
		return ""
	}
	return backend.Hold(strconv.Itoa(o.turns[shard].number))
}

// begin has every turn end.
func (o *owners) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.turns)
}

func (o *owners) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.shards) > 0
}

// fence takes everything from the writers of owners chosen, once their commit under way has ended.
func (o *owners) fence(chosen func(backend.Owner) bool) {
	o.mu.Lock()
	var found []*Writer
	for _, w := range o.shards {
		if chosen(w.owner) && !slices.Contains(found, w) {
			found = append(found, w)
		}
	}
	o.mu.Unlock()
	for _, w := range found {
		w.end()
	}
}

// Owners says who owns which shards.
func (b *Backend) Owners(context.Context) ([]backend.Ownership, error) {
	o := &b.owners
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []backend.Ownership
	for shard, w := range o.shards {
		all = append(all, backend.Ownership{Shard: shard, Owner: w.owner})
	}
	return all, nil
}

// Fence ends the writers of the log and of claims of one incarnation of a store.
func (b *Backend) Fence(ctx context.Context, storeID string, incarnation uint64) error {
	b.owners.fence(func(o backend.Owner) bool { return o.StoreID == storeID && o.Incarnation == incarnation })
	if _, err := b.write.ExecContext(ctx, "DELETE FROM claim_run WHERE store_id = ? AND incarnation = ?", storeID, int64(incarnation)); err != nil {
		return fmt.Errorf("sqlite: fence %s: %w", storeID, err)
	}
	return nil
}

// NewEpoch begins a new incarnation of every shard's log. Takes of shards for claims that a
// restored file knows nothing of are left room for.
func (b *Backend) NewEpoch(ctx context.Context, epoch uint64) error {
	if b.owners.any() {
		return fmt.Errorf("sqlite: %w: shards are owned", backend.ErrConflict)
	}
	b.owners.begin()
	return inTx(ctx, b.write, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE shard SET epoch = ?1, born = 0 WHERE (SELECT max(max(epoch), max(born)) FROM shard) < ?1", int64(epoch))
		if err != nil {
			return fmt.Errorf("sqlite: new epoch: %w", err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("sqlite: %w: the epoch is not greater than the present one", backend.ErrConflict))
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM kept"); err != nil {
			return fmt.Errorf("sqlite: new epoch: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM claim_run"); err != nil {
			return fmt.Errorf("sqlite: new epoch: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE claim_shard SET run = NULL, next = next + ?", int64(backend.ClaimsLost*backend.ClaimNumbers)); err != nil {
			return fmt.Errorf("sqlite: new epoch: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE revocation_version SET version = version + ?", backend.VersionsLost); err != nil {
			return fmt.Errorf("sqlite: new epoch: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE team_version SET version = version + ?1, gone = version + ?1", backend.VersionsLost); err != nil {
			return fmt.Errorf("sqlite: new epoch: %w", err)
		}
		return nil
	})
}
