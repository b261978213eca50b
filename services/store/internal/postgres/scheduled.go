package postgres

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func (w *writer) scheduled(all []backend.Scheduled) [][]byte {
	a := &w.arrays
	a.reset()
	column(a, oidInt8, all, func(a *arrays, s *backend.Scheduled) { a.int8(s.Due) })
	column(a, oidInt8, all, func(a *arrays, s *backend.Scheduled) { a.int8(s.PublishedAt) })
	column(a, oidInt8, all, func(a *arrays, s *backend.Scheduled) { a.int8(s.TTL) })
	column(a, oidUUID, all, func(a *arrays, s *backend.Scheduled) { a.bytes(s.MessageID[:]) })
	column(a, oidInt4, all, func(a *arrays, s *backend.Scheduled) { a.int4(s.Shard) })
	column(a, oidText, all, func(a *arrays, s *backend.Scheduled) { a.text(s.Topic) })
	column(a, oidText, all, func(a *arrays, s *backend.Scheduled) { a.text(s.Traceparent) })
	column(a, oidBytes, all, func(a *arrays, s *backend.Scheduled) { a.bytes(s.Body) })
	return a.params()
}

// removed names the span of time as well, so that only its slices are looked at.
func (w *writer) removed(all []backend.ScheduledID) [][]byte {
	a := &w.arrays
	a.reset()
	first, last := all[0].Due, all[0].Due
	for _, s := range all {
		first, last = min(first, s.Due), max(last, s.Due)
	}
	column(a, oidInt8, all, func(a *arrays, s *backend.ScheduledID) { a.int8(s.Due) })
	column(a, oidUUID, all, func(a *arrays, s *backend.ScheduledID) { a.bytes(s.MessageID[:]) })
	return append(a.params(), binary.BigEndian.AppendUint64(nil, first), binary.BigEndian.AppendUint64(nil, last))
}

const scheduledColumns = `due, message_id, shard, topic, published_at, ttl, traceparent`

// ReadScheduled goes along the slices' own indexes.
func (d *DB) ReadScheduled(ctx context.Context, shards []int, after backend.ScheduledID, to uint64, limit int) ([]backend.Scheduled, error) {
	of := make([]int32, len(shards))
	for i, s := range shards {
		of[i] = int32(s)
	}
	return query(ctx, d, scanScheduled(true), `SELECT `+scheduledColumns+`, body FROM pushmesh.scheduled
		WHERE shard = ANY($1) AND (due, message_id) > ($2, $3) AND due >= $2 AND due <= $4 ORDER BY due, message_id LIMIT $5`,
		of, int64(after.Due), after.MessageID, int64(to), limit)
}

// FindScheduled asks every slice's index.
func (d *DB) FindScheduled(ctx context.Context, messageID [16]byte) (backend.Scheduled, error) {
	found, err := query(ctx, d, scanScheduled(false), `SELECT `+scheduledColumns+` FROM pushmesh.scheduled WHERE message_id = $1`, messageID)
	if err != nil {
		return backend.Scheduled{}, err
	}
	if len(found) == 0 {
		return backend.Scheduled{}, fmt.Errorf("scheduled message %w", backend.ErrNotFound)
	}
	return found[0], nil
}

func scanScheduled(body bool) pgx.RowToFunc[backend.Scheduled] {
	return func(row pgx.CollectableRow) (s backend.Scheduled, err error) {
		var due, published, ttl int64
		var shard int32
		columns := []any{&due, &s.MessageID, &shard, &s.Topic, &published, &ttl, &s.Traceparent}
		if body {
			columns = append(columns, &s.Body)
		}
		err = row.Scan(columns...)
		s.Due, s.PublishedAt, s.TTL, s.Shard = uint64(due), uint64(published), uint64(ttl), int(shard)
		return s, err
	}
}
