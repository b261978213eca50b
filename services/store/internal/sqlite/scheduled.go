package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// moveScheduled writes what a batch brings to the schedule and takes from it.
func moveScheduled(ctx context.Context, tx *sql.Tx, batch *backend.Batch) error {
	in := &inserter{tx: tx, verb: "INSERT", table: "scheduled", columns: 8}
	for i := range batch.Scheduled {
		s := &batch.Scheduled[i]
		body := s.Body
		if body == nil {
			body = []byte{}
		}
		if err := in.add(ctx, int64(s.Due), s.MessageID[:], s.Shard, s.Topic, int64(s.PublishedAt), int64(s.TTL), s.Traceparent, body); err != nil {
			return err
		}
	}
	if err := in.flush(ctx); err != nil {
		return err
	}
	for _, s := range batch.Removed {
		if _, err := tx.ExecContext(ctx, "DELETE FROM scheduled WHERE due = ? AND message_id = ?", int64(s.Due), s.MessageID[:]); err != nil {
			return fmt.Errorf("sqlite: scheduled: %w", err)
		}
	}
	return nil
}

const scheduledColumns = "due, message_id, shard, topic, published_at, ttl, traceparent"

func scanScheduled(rows *sql.Rows, more ...any) (s backend.Scheduled, err error) {
	var id sql.RawBytes
	err = rows.Scan(append([]any{&s.Due, &id, &s.Shard, &s.Topic, &s.PublishedAt, &s.TTL, &s.Traceparent}, more...)...)
	copy(s.MessageID[:], id)
	return s, err
}

// ReadScheduled goes along the index.
func (b *Backend) ReadScheduled(ctx context.Context, shards []int, after backend.ScheduledID, to uint64, limit int) ([]backend.Scheduled, error) {
	return collect(ctx, b.read, func(rows *sql.Rows) (backend.Scheduled, error) {
		var body []byte
		s, err := scanScheduled(rows, &body)
		s.Body = body
		return s, err
	}, "SELECT "+scheduledColumns+", body FROM scheduled WHERE (due, message_id) > (?1, ?2) AND due <= ?3 AND shard IN ("+
		// numbers of our own: nothing to escape, and more than parameters may be
		strings.Trim(list(shards), "[]")+") ORDER BY due, message_id LIMIT ?4",
		int64(after.Due), after.MessageID[:], int64(to), limit)
}

// FindScheduled by message id.
func (b *Backend) FindScheduled(ctx context.Context, messageID [16]byte) (backend.Scheduled, error) {
	found, err := collect(ctx, b.read, func(rows *sql.Rows) (backend.Scheduled, error) { return scanScheduled(rows) },
		"SELECT "+scheduledColumns+" FROM scheduled WHERE message_id = ?", messageID[:])
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("scheduled message %w", backend.ErrNotFound)
	}
	if err != nil {
		return backend.Scheduled{}, err
	}
	return found[0], nil
}
