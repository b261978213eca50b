// Package outbox reads the transactional outbox: what applications wrote with pushmesh.publish.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// outboxLock is the first key of the advisory lock of whoever reads the outbox.
const outboxLock = 0x7075736b

// outboxTables take turns.
const outboxTables = 3

// outbox reads on the connection whose backend holds the advisory lock: losing the connection is
// losing the right. It is recorded as one of the store's writers, so that fencing the store ends
// it.
type outbox struct {
	server *server.Server
	conn   *server.Conn

	table int       // that new rows go to
	since time.Time // it has had its turn
	tick  int64
	done  snapshot // what it sees is settled
	open  string   // snapshot of the batch under way; "": none
	after int64    // settled up to this id in the batch under way
	// inherited: an earlier holder began the batch.
	inherited bool
}

// Outboxes opens the outbox of a database.
type Outboxes struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Outboxes { return &Outboxes{s} }

var _ backend.Outboxes = (*Outboxes)(nil)

// OpenOutbox takes the lock if it is free.
func (d *Outboxes) OpenOutbox(ctx context.Context, owner backend.Owner) (backend.Outbox, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.server.Config.Patience)
	defer cancel()
	conn, err := d.server.Connect(ctx, "pushmesh-outbox", nil)
	if err != nil {
		return nil, err
	}
	o := &outbox{server: d.server, conn: conn, since: time.Now()}
	if err := o.begin(ctx, owner); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *outbox) begin(ctx context.Context, owner backend.Owner) (err error) {
	if err := o.conn.Trust(ctx); err != nil {
		return err
	}
	var mine bool
	if err := o.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, 0)`, int32(outboxLock)).Scan(&mine); err != nil {
		return fmt.Errorf("postgres: lock the outbox: %w", err)
	}
	if !mine {
		return backend.ErrOtherReader
	}
	var b pgx.Batch
	o.conn.RecordOnly(&b, owner)
	if err := o.conn.SendBatch(ctx, &b).Close(); err != nil {
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
	o.server.Config.Log.Warn("the transactional outbox was copied from another server: all its messages are published again, except those that their dedupe keys recognize")
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
func (o *outbox) note(ctx context.Context, on server.Querier) error {
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

// Close gives the lock back.
func (o *outbox) Close() error {
	return o.conn.End(func(ctx context.Context) error {
		// the backend ends some time after its connection, and others wait for the lock
		_, err := o.conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
		return err
	})
}
