package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// dropRows is how many rows go in one transaction: an append waits for at most one.
	dropRows = 500
	// dropTime bounds one call of DropSlices.
	dropTime = 2 * time.Second
	// batchKeep is how long batch ids are known.
	batchKeep = time.Hour
)

// MakeSlices makes the tables for now and for the time after.
func (b *Backend) MakeSlices(ctx context.Context, now uint64) error {
	var want []sliceTable
	for c := range backend.Classes {
		s := c.Slice(now)
		want = append(want, logSlice(c, s), logSlice(c, s.Next()))
	}
	for c := range backend.KeyClasses {
		for s := c.Slice(now); ; s = s.Next() {
			want = append(want, keySlice(c, s))
			if s.Start > c.Reach(now).Start {
				break
			}
		}
	}
	want = slices.DeleteFunc(want, b.slices.has)
	if len(want) == 0 {
		return nil
	}
	err := inTx(ctx, b.write, func(tx *sql.Tx) error {
		for _, s := range want {
			if err := makeSlice(ctx, tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		b.slices.add(want)
	}
	return err
}

// DropSlices drops what no retention needs any more. A big table is emptied in small pieces first:
// dropping it at once would hold up appends.
func (b *Backend) DropSlices(ctx context.Context, now uint64) (dropped int, err error) {
	deadline := time.Now().Add(dropTime)
	if err := b.forgetBatches(ctx, now, deadline); err != nil {
		return 0, err
	}
	all, err := listSlices(ctx, b.write, "ORDER BY ends")
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if !s.over(now) {
			continue
		}
		done, err := b.drop(ctx, s, deadline)
		if err != nil || !done {
			return dropped, err
		}
		dropped++
	}
	return dropped, nil
}

func (b *Backend) drop(ctx context.Context, s sliceTable, deadline time.Time) (done bool, err error) {
	const where = " WHERE kind = ? AND class = ? AND starts = ?"
	if _, err := b.write.ExecContext(ctx, "UPDATE slice SET dropping = 1"+where, s.kind, s.class, int64(s.Start)); err != nil {
		return false, fmt.Errorf("sqlite: drop %s: %w", s.name(), err)
	}
	b.slices.remove(s)
	id := "rowid"
	if s.kind == keyKind {
		id = "hash"
	}
	some := fmt.Sprintf("DELETE FROM %s WHERE %s IN (SELECT %s FROM %s LIMIT %d)", s.name(), id, id, s.name(), dropRows)
	if empty, err := b.deleteAll(ctx, some, deadline); err != nil || !empty {
		return false, err
	}
	return true, inTx(ctx, b.write, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DROP TABLE "+s.name()); err != nil {
			return fmt.Errorf("sqlite: drop %s: %w", s.name(), err)
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM slice"+where, s.kind, s.class, int64(s.Start)); err != nil {
			return fmt.Errorf("sqlite: drop %s: %w", s.name(), err)
		}
		return nil
	})
}

func (b *Backend) forgetBatches(ctx context.Context, now uint64, deadline time.Time) error {
	const some = "DELETE FROM batch WHERE rowid IN (SELECT rowid FROM batch ORDER BY rowid LIMIT 500) AND at < ?"
	_, err := b.deleteAll(ctx, some, deadline, int64(now)-batchKeep.Microseconds())
	return err
}

// deleteAll repeats a DELETE until it finds nothing or the deadline has passed.
func (b *Backend) deleteAll(ctx context.Context, query string, deadline time.Time, args ...any) (empty bool, err error) {
	for {
		res, err := b.write.ExecContext(ctx, query, args...)
		if err != nil {
			return false, fmt.Errorf("sqlite: delete: %w", err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err == nil, err
		}
		if time.Now().After(deadline) {
			return false, nil
		}
	}
}
