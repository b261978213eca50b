package log

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

func (w *Writer) scheduled(all []backend.Scheduled) [][]byte {
	a := &w.arrays
	a.Reset()
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, s *backend.Scheduled) { a.Int8(s.Due) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, s *backend.Scheduled) { a.Int8(s.PublishedAt) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, s *backend.Scheduled) { a.Int8(s.TTL) })
	server.Column(a, server.OIDUUID, all, func(a *server.Arrays, s *backend.Scheduled) { a.Bytes(s.MessageID[:]) })
	server.Column(a, server.OIDInt4, all, func(a *server.Arrays, s *backend.Scheduled) { a.Int4(s.Shard) })
	server.Column(a, server.OIDText, all, func(a *server.Arrays, s *backend.Scheduled) { a.Text(s.Topic) })
	server.Column(a, server.OIDText, all, func(a *server.Arrays, s *backend.Scheduled) { a.Text(s.Traceparent) })
	server.Column(a, server.OIDBytes, all, func(a *server.Arrays, s *backend.Scheduled) { a.Bytes(s.Body) })
	return a.Params()
}

// removed names the span of time as well, so that only its slices are looked at.
func (w *Writer) removed(all []backend.ScheduledID) [][]byte {
	a := &w.arrays
	a.Reset()
	first, last := all[0].Due, all[0].Due
	for _, s := range all {
		first, last = min(first, s.Due), max(last, s.Due)
	}
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, s *backend.ScheduledID) { a.Int8(s.Due) })
	server.Column(a, server.OIDUUID, all, func(a *server.Arrays, s *backend.ScheduledID) { a.Bytes(s.MessageID[:]) })
	return append(a.Params(), binary.BigEndian.AppendUint64(nil, first), binary.BigEndian.AppendUint64(nil, last))
}

const scheduledColumns = `due, message_id, shard, topic, published_at, ttl, traceparent`

// ReadScheduled goes along the slices' own indexes.
func (l *Log) ReadScheduled(ctx context.Context, shards []int, after backend.ScheduledID, to uint64, limit int) ([]backend.Scheduled, error) {
	of := make([]int32, len(shards))
	for i, s := range shards {
		of[i] = int32(s)
	}
	return server.Query(ctx, l.server, scanScheduled(true), `SELECT `+scheduledColumns+`, body FROM pushmesh.scheduled
		WHERE shard = ANY($1) AND (due, message_id) > ($2, $3) AND due >= $2 AND due <= $4 ORDER BY due, message_id LIMIT $5`,
		of, int64(after.Due), after.MessageID, int64(to), limit)
}

// FindScheduled asks every slice's index.
func (l *Log) FindScheduled(ctx context.Context, messageID [16]byte) (backend.Scheduled, error) {
	found, err := server.Query(ctx, l.server, scanScheduled(false), `SELECT `+scheduledColumns+` FROM pushmesh.scheduled WHERE message_id = $1`, messageID)
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
