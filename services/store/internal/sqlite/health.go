package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// retryAfter is when to come back to a file that can't be written to.
const retryAfter = 500 * time.Millisecond

// probeBytes are written, and taken back, to see whether there is room again.
const probeBytes = 64 << 10

// Ping asks for one row. A file that could not be written to is written to.
func (b *Backend) Ping(ctx context.Context) error {
	if full := b.full.Load(); full != nil {
		if err := b.probe(ctx); err != nil {
			return fmt.Errorf("sqlite: the file can't be written to: %w", err)
		}
		b.full.CompareAndSwap(full, nil)
	}
	var one int
	if err := b.read.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return nil
}

func (b *Backend) probe(ctx context.Context) error {
	return inTx(ctx, b.write, func(tx *sql.Tx) error {
		id := make([]byte, probeBytes)
		_, _ = rand.Read(id) // it never fails
		if _, err := tx.ExecContext(ctx, "INSERT INTO batch VALUES (?, 0)", id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM batch WHERE id = ?", id)
		return err
	})
}

// Away says why nothing is written now.
func (b *Backend) Away() error {
	if full := b.full.Load(); full != nil {
		return fmt.Errorf("%w: %w", code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the database can't be written to"), *full)
	}
	return nil
}

// Check says the same for people.
func (b *Backend) Check() error {
	if full := b.full.Load(); full != nil {
		return fmt.Errorf("can't be written to: %w", *full)
	}
	return nil
}

// noted remembers a write that found no room, or a disk that fails, until Ping has written.
func (b *Backend) noted(err error) {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff { // the primary code
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT:
			b.full.Store(&err)
		}
	}
}
