package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// WriteCursors does every write in one transaction; those refused change nothing.
func (b *Backend) WriteCursors(ctx context.Context, writes []*meshv1.SessionWrite, now uint64) ([]wirev1.Code, error) {
	codes := make([]wirev1.Code, len(writes))
	err := inTx(ctx, b.write, func(tx *sql.Tx) error {
		for i, w := range writes {
			s, err := findSession(ctx, tx, w.GetUser(), w.GetName(), now)
			switch {
			case err != nil:
				return err
			case s == nil:
				codes[i] = wirev1.Code_CODE_NOT_FOUND
				continue
			case s.generation != w.GetGeneration():
				codes[i] = wirev1.Code_CODE_SESSION_TAKEN_OVER
				continue
			}
			if err := writeSession(ctx, tx, w, s, now); err != nil {
				return fmt.Errorf("sqlite: write cursors: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return codes, nil
}

func writeSession(ctx context.Context, tx *sql.Tx, w *meshv1.SessionWrite, s *session, now uint64) error {
	exec := func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, query, append([]any{s.user, s.name}, args...)...)
		return err
	}
	used, err := uses(ctx, tx, w, s) // before it removes filters
	if err != nil {
		return err
	}
	for _, c := range w.GetCursors() {
		packed, err := proto.Marshal(c)
		if err != nil {
			return err
		}
		if err := exec("INSERT OR REPLACE INTO session_cursor (user, name, topic, cursor) VALUES (?, ?, ?, ?)", c.GetTopic(), packed); err != nil {
			return err
		}
	}
	for _, t := range w.GetRemoveTopics() {
		if err := exec("DELETE FROM session_cursor WHERE user = ? AND name = ? AND topic = ?", t); err != nil {
			return err
		}
	}
	for _, f := range w.GetRemoveFilters() {
		if err := exec("DELETE FROM session_filter WHERE user = ? AND name = ? AND filter = ?", f); err != nil {
			return err
		}
	}
	for _, f := range w.GetAddFilters() {
		if err := exec("INSERT OR IGNORE INTO session_filter (user, name, filter) VALUES (?, ?, ?)", f); err != nil {
			return err
		}
	}
	for _, d := range w.GetDeadLetters() {
		if err := exec(`INSERT INTO dead_letter (user, session, topic, epoch, seq, body, reason, attempts, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, d.GetTopic(), int64(d.GetEpoch()), int64(d.GetSeq()), d.GetBody(), int64(d.GetReason()), d.GetAttempts(), int64(d.GetAt())); err != nil {
			return err
		}
	}
	if used && !s.used {
		if err := exec("UPDATE session SET used = 1 WHERE user = ? AND name = ?"); err != nil {
			return err
		}
	}
	switch {
	case w.GetDetach():
		return exec("UPDATE session SET edge = '', connection = 0, expires_at = ?3 + "+lasts+" WHERE user = ?1 AND name = ?2", int64(now))
	case s.expiresAt != 0: // taken for dead, but its holder lives
		return exec("UPDATE session SET expires_at = ?3 + ttl WHERE user = ?1 AND name = ?2", int64(now))
	}
	return nil
}

// uses reports whether a session has had a filter or cursor once a write is done. A store of an
// earlier version does not mark it as used, and may have had it since it was created: before it is
// detached, or loses a filter, one that it has tells.
func uses(ctx context.Context, tx *sql.Tx, w *meshv1.SessionWrite, s *session) (used bool, err error) {
	if used = s.used || len(w.GetCursors())+len(w.GetAddFilters()) > 0; used || !w.GetDetach() && len(w.GetRemoveFilters()) == 0 {
		return used, nil
	}
	err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM session_filter WHERE user = ? AND name = ?)", s.user, s.name).Scan(&used)
	return used, err
}

// FoldCursors has nothing to do: cursors are replaced in place, and SQLite keeps no old rows.
func (b *Backend) FoldCursors(context.Context, backend.Fold) error { return nil }
