package outbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Rotate truncates the next table and gives it its turn. It is safe whatever transactions do
// meanwhile: under the exclusive lock nobody writes to the table, and what it holds is looked at
// after the lock was given. The lock is never waited for.
func (o *outbox) Rotate(ctx context.Context, older time.Duration, larger int64) (s backend.OutboxState, err error) {
	ctx, cancel := context.WithTimeout(ctx, server.BulkTimeout)
	defer cancel()
	var present int64
	var used bool
	err = o.conn.QueryRow(ctx, fmt.Sprintf(`
		SELECT pg_total_relation_size('pushmesh.outbox_0') + pg_total_relation_size('pushmesh.outbox_1') + pg_total_relation_size('pushmesh.outbox_2')
		     + pg_total_relation_size('pushmesh.outbox_tick_0') + pg_total_relation_size('pushmesh.outbox_tick_1') + pg_total_relation_size('pushmesh.outbox_tick_2'),
		       pg_total_relation_size('pushmesh.outbox_%[1]d'),
		       pg_relation_size('pushmesh.outbox_%[1]d') + pg_relation_size('pushmesh.outbox_%[2]d') + pg_relation_size('pushmesh.outbox_%[3]d') > 0`,
		o.table, (o.table+1)%outboxTables, (o.table+2)%outboxTables)).Scan(&s.Bytes, &present, &used)
	if err != nil {
		return s, fmt.Errorf("postgres: size of the outbox: %w", err)
	}
	s.Age = time.Since(o.since)
	if present <= larger && (s.Age <= older || !used) {
		return s, nil
	}
	next := (o.table + 1) % outboxTables
	turned, err := o.turn(ctx, next)
	if err != nil {
		return s, err
	}
	if s.Blocked = !turned; turned {
		o.table, o.since, s.Age = next, time.Now(), 0
	}
	return s, nil
}

// turn is false where someone uses the next table, or not all of it is settled.
func (o *outbox) turn(ctx context.Context, next int) (turned bool, err error) {
	err = pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`LOCK TABLE pushmesh.outbox_%[1]d, pushmesh.outbox_tick_%[1]d IN ACCESS EXCLUSIVE MODE NOWAIT`, next)); err != nil {
			return err
		}
		var unsettled bool
		if err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM pushmesh.outbox_%[1]d WHERE xid >= $1::text::xid8)
			OR EXISTS (SELECT FROM pushmesh.outbox_%[1]d WHERE xid = ANY($2::text[]::xid8[]))`, next),
			strconv.FormatUint(o.done.max, 10), o.done.underWay).Scan(&unsettled); err != nil || unsettled {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`TRUNCATE pushmesh.outbox_%[1]d, pushmesh.outbox_tick_%[1]d`, next)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE pushmesh.outbox_current SET k = $1`, next); err != nil {
			return err
		}
		present := o.table
		o.table = next
		defer func() { o.table = present }()
		turned = true
		return o.note(ctx, tx)
	})
	if server.SQLState(err) == server.LockNotAvailable {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("postgres: rotate the outbox: %w", err)
	}
	return turned, nil
}
