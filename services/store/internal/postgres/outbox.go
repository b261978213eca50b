package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// outboxLock is the first key of the advisory lock of whoever reads the outbox.
const outboxLock = 0x7075736b

// outboxTables take turns.
const outboxTables = 3

// outbox reads on the connection whose backend holds the advisory lock: losing the connection is
// losing the right. It is recorded as one of the store's writers, so that fencing the store ends
// it.
type outbox struct {
	db      *DB
	conn    *pgx.Conn
	process process

	table int       // that new rows go to
	since time.Time // it has had its turn
	tick  int64
	done  snapshot // what it sees is settled
	open  string   // snapshot of the batch under way; "": none
	after int64    // settled up to this id in the batch under way
	// inherited: an earlier holder began the batch.
	inherited bool
}

var _ backend.Outboxes = (*DB)(nil)

// OpenOutbox takes the lock if it is free.
func (d *DB) OpenOutbox(ctx context.Context, owner backend.Owner) (backend.Outbox, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.cfg.Patience)
	defer cancel()
	conn, err := d.connect(ctx, "pushmesh-outbox", 0)
	if err != nil {
		return nil, err
	}
	o := &outbox{db: d, conn: conn, since: time.Now()}
	if err := o.begin(ctx, owner); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *outbox) begin(ctx context.Context, owner backend.Owner) (err error) {
	if o.process, err = o.db.sound(ctx, o.conn); err != nil {
		return err
	}
	if err := o.db.familiar(ctx, o.conn); err != nil {
		return err
	}
	var mine bool
	if err := o.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, 0)`, int32(outboxLock)).Scan(&mine); err != nil {
		return fmt.Errorf("postgres: lock the outbox: %w", err)
	}
	if !mine {
		return backend.ErrOtherReader
	}
	if _, err := o.conn.Exec(ctx, recordWriter,
		o.process.pid, o.process.start, owner.StoreID, int64(owner.Incarnation)); err != nil {
		return fmt.Errorf("postgres: record the outbox's reader: %w", err)
	}
	return o.load(ctx)
}

// load finds where the last holder was.
func (o *outbox) load(ctx context.Context) error {
	var done, now string
	var open *string
	err := o.conn.QueryRow(ctx, `
		SELECT c.k, t.n, t.done::text, t.open::text, t.after_id, pg_current_snapshot()::text
		FROM pushmesh.outbox_current AS c, pushmesh.outbox_tick AS t ORDER BY t.n DESC LIMIT 1`).
		Scan(&o.table, &o.tick, &done, &open, &o.after, &now)
	if err != nil {
		return fmt.Errorf("postgres: read the outbox's position: %w", err)
	}
	if o.done, err = parseSnapshot(done); err != nil {
		return err
	}
	if open != nil {
		o.open, o.inherited = *open, true
	}
	present, err := parseSnapshot(now)
	if err == nil && present.max < o.done.max {
		return o.adopt(ctx)
	}
	return err
}

// adopt makes an outbox readable that was copied from another server (pg_dump): its transactions'
// ids mean nothing here. All that still lies in it counts as not settled; dedupe keys know what was
// published.
func (o *outbox) adopt(ctx context.Context) error {
	o.db.cfg.Log.Warn("the transactional outbox was copied from another server: all its messages are published again, except those that their dedupe keys recognize")
	return pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) error {
		var now string
		if err := tx.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&now); err != nil {
			return err
		}
		for k := range outboxTables {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`UPDATE pushmesh.outbox_%d SET xid = pg_current_xact_id()`, k)); err != nil {
				return fmt.Errorf("postgres: adopt the outbox: %w", err)
			}
		}
		var err error
		if o.done, err = parseSnapshot(now); err != nil {
			return err
		}
		o.open, o.after, o.inherited = "", 0, true
		return o.note(ctx, tx)
	})
}

// note writes the position into the present table of positions.
func (o *outbox) note(ctx context.Context, on execer) error {
	var open *string
	if o.open != "" {
		open = &o.open
	}
	_, err := on.Exec(ctx, fmt.Sprintf(`INSERT INTO pushmesh.outbox_tick_%d (n, done, open, after_id)
		VALUES ($1, $2::text::pg_snapshot, $3::text::pg_snapshot, $4)`, o.table), o.tick+1, o.done.text, open, o.after)
	if err != nil {
		return fmt.Errorf("postgres: note the outbox's position: %w", err)
	}
	o.tick++
	return nil
}

// Close gives the lock back with the connection.
func (o *outbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), o.db.cfg.Patience)
	defer cancel()
	if !o.conn.IsClosed() {
		// Where that fails, the next writer forgets the record.
		_, _ = o.conn.Exec(ctx, `DELETE FROM pushmesh.writer WHERE pid = $1 AND backend_start = $2`, o.process.pid, o.process.start)
	}
	if err := o.conn.Close(ctx); err != nil && !away(err) {
		return err
	}
	return nil
}
