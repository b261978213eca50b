package outbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// What transactions wrote that the snapshot done ($1: its max, $2: those under way) does not see,
// and the snapshot open ($3; null: the statement's own, which sees all that the statement sees)
// does. Each table's index on xid is asked twice; id + 0 and OFFSET keep the planner from walking
// along the ids of what was settled long ago.
var listOutbox = func() string {
	var parts []string
	for k := range outboxTables {
		for _, unseen := range []string{`xid >= $1::text::xid8`, `xid = ANY($2::text[]::xid8[])`} {
			parts = append(parts, fmt.Sprintf(`(SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 512 AS size
				FROM pushmesh.outbox_%d WHERE %s AND ($3::text IS NULL OR pg_visible_in_snapshot(xid, $3::text::pg_snapshot)) AND id + 0 > $4 OFFSET 0)`, k, unseen))
		}
	}
	return `SELECT pg_current_snapshot()::text, o.id, o.size FROM (` + strings.Join(parts, " UNION ALL ") + `) AS o ORDER BY o.id LIMIT `
}()

// Pending lists first and then, where it begins a batch, notes so: a successor knows that rows may
// have been published.
func (o *outbox) Pending(ctx context.Context, limit int) (rows []backend.OutboxEntry, repeated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, server.BulkTimeout)
	defer cancel()
	var open *string
	if o.open != "" {
		open = &o.open
	}
	var now string
	var e backend.OutboxEntry
	found, err := o.conn.Query(ctx, listOutbox+strconv.Itoa(limit), strconv.FormatUint(o.done.max, 10), o.done.underWay, open, o.after)
	if err = server.Each(found, err, []any{&now, &e.ID, &e.Size}, func() { rows = append(rows, e) }); err != nil {
		return nil, false, fmt.Errorf("postgres: list the outbox: %w", err)
	}
	if o.open != "" {
		if len(rows) > 0 {
			return rows, o.inherited, nil
		}
		// the last holder ended between the last row and its note
		return nil, false, o.Settle(ctx, o.after, true, nil)
	}
	if len(rows) > 0 {
		o.open, o.after = now, 0
		err = o.note(ctx, o.conn)
	}
	return rows, o.inherited, err
}

const outboxColumns = `id, message_id, at, ttl, deliver_at, priority, topic, dedupe_key, traceparent, headers, payload`

var readOutbox = func() string {
	var parts []string
	for k := range outboxTables {
		parts = append(parts, fmt.Sprintf(`SELECT %s FROM pushmesh.outbox_%d WHERE id = ANY($1)`, outboxColumns, k))
	}
	return `SELECT * FROM (` + strings.Join(parts, " UNION ALL ") + `) AS o ORDER BY id`
}()

// Rows reads by id.
func (o *outbox) Rows(ctx context.Context, ids []int64) ([]backend.OutboxRow, error) {
	ctx, cancel := context.WithTimeout(ctx, o.server.Config.Patience)
	defer cancel()
	found, err := o.conn.Query(ctx, readOutbox, ids)
	if err != nil {
		return nil, fmt.Errorf("postgres: read the outbox: %w", err)
	}
	rows, err := pgx.CollectRows(found, scanOutbox)
	if err == nil && len(rows) != len(ids) {
		err = fmt.Errorf("%d of %d rows are there", len(rows), len(ids))
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: read the outbox: %w", err)
	}
	return rows, nil
}

func scanOutbox(row pgx.CollectableRow) (r backend.OutboxRow, err error) {
	var at, ttl, due int64
	var priority int16
	err = row.Scan(&r.ID, &r.MessageID, &at, &ttl, &due, &priority, &r.Topic, &r.DedupeKey, &r.Traceparent, &r.Headers, &r.Payload)
	r.At, r.TTL, r.DeliverAt, r.Priority = uint64(at), time.Duration(ttl)*time.Microsecond, uint64(due), uint32(priority)
	return r, err
}

// keepRefused is how long refused rows are kept for a human.
const keepRefused = 30 * 24 * time.Hour

// Settle writes the refusals and the position in one transaction.
func (o *outbox) Settle(ctx context.Context, through int64, last bool, refused []backend.OutboxRefusal) error {
	ctx, cancel := context.WithTimeout(ctx, o.server.Config.Patience)
	defer cancel()
	if o.after = through; last {
		done, err := parseSnapshot(o.open)
		if err != nil {
			return err
		}
		o.done, o.open, o.after, o.inherited = done, "", 0, false
	}
	if len(refused) == 0 {
		return o.note(ctx, o.conn)
	}
	return pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) error {
		if err := keep(ctx, tx, "outbox", refused); err != nil {
			return err
		}
		return o.note(ctx, tx)
	})
}

// keep writes refusals of rows that lie in from.
func keep(ctx context.Context, tx pgx.Tx, from string, refused []backend.OutboxRefusal) error {
	if len(refused) == 0 {
		return nil
	}
	ids, codes, errs := make([]int64, len(refused)), make([]string, len(refused)), make([]string, len(refused))
	for i, r := range refused {
		ids[i], codes[i], errs[i] = r.ID, r.Code, r.Error
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO pushmesh.outbox_refused (id, message_id, topic, code, error, payload, headers)
		SELECT o.id, o.message_id, o.topic, r.code, r.error, o.payload, o.headers
		FROM unnest($1::bigint[], $2::text[], $3::text[]) AS r (id, code, error) JOIN pushmesh.`+from+` AS o USING (id)
		ON CONFLICT DO NOTHING`, ids, codes, errs); err != nil {
		return fmt.Errorf("postgres: keep what was refused: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM pushmesh.outbox_refused WHERE refused_at < now() - $1::interval`, keepRefused); err != nil {
		return fmt.Errorf("postgres: forget what was refused: %w", err)
	}
	return nil
}
