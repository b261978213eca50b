package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Writer appends to the shards it owns.
type Writer struct {
	backend.Finder // the backend: readers never delay a writer
	b              *Backend
	owner          backend.Owner

	mu    sync.Mutex // held during a commit, so that a fence waits for it
	ended bool
}

// OpenWriter makes a writer.
func (b *Backend) OpenWriter(_ context.Context, owner backend.Owner) (backend.Writer, error) {
	return &Writer{Finder: b, b: b, owner: owner}, nil
}

// TakeShards takes free shards.
func (w *Writer) TakeShards(_ context.Context, shards []int) ([]int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil, fmt.Errorf("sqlite: %w", backend.ErrLost)
	}
	return w.b.owners.claim(w, shards), nil
}

// Hold is which turn of its owner it is.
func (w *Writer) Hold(shard int) backend.Hold { return w.b.owners.hold(w, shard) }

// ReleaseShards gives shards back.
func (w *Writer) ReleaseShards(_ context.Context, shards []int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.owners.release(w, shards)
	return nil
}

// Close gives every shard back.
func (w *Writer) Close() error {
	w.end()
	return nil
}

func (w *Writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	o := &w.b.owners
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard, have := range o.shards {
		if have == w {
			delete(o.shards, shard)
		}
	}
}

// check reports whether the writer owns the shards. w.mu is held.
func (w *Writer) check(shards ...int) error {
	if w.ended {
		return fmt.Errorf("sqlite: %w: the writer has ended", backend.ErrLost)
	}
	for _, shard := range shards {
		if !w.b.owners.owns(w, shard) {
			return fmt.Errorf("sqlite: %w: shard %d", backend.ErrLost, shard)
		}
	}
	return nil
}

// Commit writes a batch in one transaction.
func (w *Writer) Commit(ctx context.Context, batch *backend.Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range batch.Commits {
		if err := w.check(c.Shard); err != nil {
			return err
		}
	}
	for i := range batch.Runs {
		if err := w.check(batch.Runs[i].Shard); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite: %w: %w", backend.ErrNotCommitted, err)
	}
	// A local transaction is short. Were it cut by ctx, its outcome would be harder to tell.
	ctx = context.WithoutCancel(ctx)
	var made []sliceTable
	err := inTx(ctx, w.b.write, func(tx *sql.Tx) (err error) {
		made, err = w.b.insert(ctx, tx, batch)
		return err
	})
	if err == nil {
		w.b.slices.add(made)
		return nil
	}
	w.b.noted(err)
	switch yes, askErr := w.b.committed(ctx, batch.ID); {
	case askErr != nil:
		return fmt.Errorf("sqlite: %w: %w", backend.ErrUnknown, errors.Join(err, askErr))
	case yes:
		w.b.slices.add(made)
		return nil
	}
	return fmt.Errorf("sqlite: %w: %w", backend.ErrNotCommitted, err)
}

// Committed reports whether a batch is in the database.
func (w *Writer) Committed(ctx context.Context, id backend.BatchID) (bool, error) {
	return w.b.committed(ctx, id)
}

// committed asks the connection that writes: what it did not commit was rolled back.
func (b *Backend) committed(ctx context.Context, id backend.BatchID) (bool, error) {
	var at int64
	err := b.write.QueryRowContext(ctx, "SELECT at FROM batch WHERE id = ? ORDER BY rowid DESC LIMIT 1", id[:]).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("sqlite: batch: %w", err)
	}
	return true, nil
}
