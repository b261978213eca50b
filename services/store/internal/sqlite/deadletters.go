package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ListDeadLetters whose topic matches a filter. It walks through the ids, so that a filter that
// matches little costs time, not memory.
func (b *Backend) ListDeadLetters(ctx context.Context, filter string, after uint64, limit int) (found []*meshv1.DeadLetter, err error) {
	const page = 500
	for {
		all, err := b.letters(ctx, "SELECT "+letterColumns+" FROM dead_letter WHERE id > ? ORDER BY id LIMIT ?", int64(after), page)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			after = d.GetId()
			if filter == "" || topic.Match(filter, d.GetTopic()) {
				if found = append(found, d); len(found) == limit {
					return found, nil
				}
			}
		}
		if len(all) < page {
			return found, nil
		}
	}
}

// FindDeadLetters by id.
func (b *Backend) FindDeadLetters(ctx context.Context, ids []uint64) (found []*meshv1.DeadLetter, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return b.letters(ctx, "SELECT "+letterColumns+" FROM dead_letter WHERE "+idIn(ids)+" ORDER BY id", signed(ids)...)
}

// UncopiedLetters goes along an index that has nothing else.
func (b *Backend) UncopiedLetters(ctx context.Context, after uint64, limit int) ([]*meshv1.DeadLetter, error) {
	return b.letters(ctx, "SELECT "+letterColumns+" FROM dead_letter WHERE copied = 0 AND id > ? ORDER BY id LIMIT ?", int64(after), limit)
}

// MarkLettersCopied by id.
func (b *Backend) MarkLettersCopied(ctx context.Context, ids []uint64) error {
	return inTx(ctx, b.write, func(tx *sql.Tx) error { return markCopied(ctx, tx, ids) })
}

func markCopied(ctx context.Context, tx *sql.Tx, ids []uint64) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "UPDATE dead_letter SET copied = 1 WHERE "+idIn(ids), signed(ids)...); err != nil {
		return fmt.Errorf("sqlite: copied letters: %w", err)
	}
	return nil
}

func (b *Backend) letters(ctx context.Context, query string, args ...any) ([]*meshv1.DeadLetter, error) {
	return collect(ctx, b.read, scanLetter, query, args...)
}

// DiscardDeadLetters deletes.
func (b *Backend) DiscardDeadLetters(ctx context.Context, ids []uint64) (n int, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		n, err = discardLetters(ctx, tx, ids)
		return err
	})
	return n, err
}

func discardLetters(ctx context.Context, tx *sql.Tx, ids []uint64) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	res, err := tx.ExecContext(ctx, "DELETE FROM dead_letter WHERE "+idIn(ids), signed(ids)...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: discard: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func idIn(ids []uint64) string { return "id IN (?" + strings.Repeat(",?", len(ids)-1) + ")" }

func signed(ids []uint64) []any {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = int64(id)
	}
	return args
}

const letterColumns = "id, topic, epoch, seq, body, reason, attempts, user, session, at"

func scanLetter(rows *sql.Rows) (*meshv1.DeadLetter, error) {
	d := &meshv1.DeadLetter{}
	var reason int32
	err := rows.Scan(&d.Id, &d.Topic, &d.Epoch, &d.Seq, &d.Body, &reason, &d.Attempts, &d.User, &d.Session, &d.At)
	d.Reason = wirev1.Code(reason)
	return d, err
}
