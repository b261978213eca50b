package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Watch owns one connection. That it asks is its store's heartbeat: the server keeps for each
// backend when it began or ended something last, in its memory. So a heartbeat writes nothing, and
// leaves nothing behind for a long reader to keep. It goes past the gate: load must not make a
// store look silent.
type Watch struct {
	log  *Log
	Conn *server.Conn

	mu     sync.Mutex // one owner uses the watch, but it may be closed at any time
	closed bool
}

// OpenWatch makes a connection for a watch and records it as the store's.
func (l *Log) OpenWatch(ctx context.Context, owner backend.Owner) (backend.Watch, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*l.server.Config.Patience)
	defer cancel()
	conn, err := l.server.Connect(ctx, "pushmesh-watch", server.LockTimeout(l.server.Config.Patience))
	if err != nil {
		return nil, err
	}
	w := &Watch{log: l, Conn: conn}
	if err := w.begin(ctx, owner); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("postgres: watch the stores: %w", err)
	}
	return w, nil
}

func (w *Watch) begin(ctx context.Context, owner backend.Owner) error {
	var tracked string
	var pid int32
	var start time.Time
	err := w.Conn.QueryRow(ctx, `SELECT pid, backend_start, current_setting('track_activities') FROM pg_stat_activity WHERE pid = pg_backend_pid()`).
		Scan(&pid, &start, &tracked)
	if err != nil {
		return err
	}
	if tracked != "on" {
		w.log.server.Config.Log.Warn("a store that hangs can't be fenced: set track_activities to on in Postgres", "track_activities", tracked)
	}
	var b pgx.Batch
	w.Conn.Identify(pid, start)
	w.Conn.Record(&b, owner)
	return w.Conn.SendBatch(ctx, &b).Close()
}

// runs are the stores' runs with backends that live. A backend whose statement waits for its client
// has nothing to do for it: the client may be frozen. One whose state may not be seen (a role
// without pg_read_all_stats looks at another role's, or track_activities is off) counts as busy.
const runs = `
	SELECT w.store_id, w.incarnation, string_agg(a.pid || '@' || coalesce(extract(epoch FROM a.state_change)::text, ''), ' ' ORDER BY a.pid) AS mark,
		bool_or(a.state_change IS NULL OR a.state = 'active' AND a.wait_event_type IS DISTINCT FROM 'Client') AS busy,
		coalesce(min(r.rolname) FILTER (WHERE NOT ` + server.MayFence + `), '') AS theirs, current_user AS mine, bool_or(r.rolsuper) AS super,
		bool_or(a.state = 'disabled') IS TRUE AS untracked
	FROM pushmesh.writer AS w JOIN pg_stat_activity AS a ON ` + server.SameBackend + ` JOIN pg_roles AS r ON r.oid = a.usesysid
	GROUP BY w.store_id, w.incarnation`

// Look asks for everything in one round trip, and whether the server is set as it was at the start.
func (w *Watch) Look(ctx context.Context) (v backend.View, err error) {
	err = w.use(ctx, func(ctx context.Context) error {
		var b pgx.Batch
		set := w.log.server.Settings(&b)
		b.Queue(`SELECT shard, store_id, incarnation, address FROM pushmesh.owner ORDER BY shard`).Query(func(rows pgx.Rows) error {
			v.Owners, err = pgx.CollectRows(rows, scanOwnership)
			return err
		})
		b.Queue(runs).Query(func(rows pgx.Rows) error {
			v.Runs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p backend.Pulse, err error) {
				var incarnation int64
				var theirs, mine string
				var super, untracked bool
				err = row.Scan(&p.StoreID, &incarnation, &p.Mark, &p.Busy, &theirs, &mine, &super, &untracked)
				p.Incarnation = uint64(incarnation)
				switch {
				case theirs != "":
					p.Unfenceable = server.Unfenceable(theirs, mine, super)
				case untracked:
					p.Unfenceable = "track_activities is off for its connections: set it to on"
				}
				return p, err
			})
			return err
		})
		if err := w.Conn.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		w.log.server.WatchSettings(ctx, set, w.Conn)
		return nil
	})
	return v, err
}

// Fence compares the mark in the statement that terminates: this process may have been frozen since
// it was read.
func (w *Watch) Fence(ctx context.Context, run backend.RunID, mark string) error {
	alive := false
	err := w.use(ctx, func(ctx context.Context) error {
		var ended, lives bool
		err := w.Conn.QueryRow(ctx, `
			WITH run AS MATERIALIZED (SELECT * FROM (`+runs+`) AS r WHERE store_id = $1 AND incarnation = $2),
			silent AS MATERIALIZED (SELECT FROM run WHERE mark = $3 AND NOT busy),
			ended AS MATERIALIZED (SELECT pg_terminate_backend(a.pid) FROM silent, pushmesh.writer AS w
				JOIN pg_stat_activity AS a ON a.pid = w.pid AND a.backend_start = w.backend_start WHERE w.store_id = $1 AND w.incarnation = $2)
			SELECT (SELECT count(*) > 0 FROM ended), EXISTS (SELECT FROM run)`, run.StoreID, int64(run.Incarnation), mark).Scan(&ended, &lives)
		alive = lives && !ended
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("fence %s: %w", run.StoreID, err)
	case alive:
		return backend.ErrAlive
	}
	return w.log.Fence(ctx, run.StoreID, run.Incarnation) // waits for their end, and forgets them
}

// use runs f within the patience that a statement has.
func (w *Watch) use(ctx context.Context, f func(ctx context.Context) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errors.New("postgres: the watch is closed")
	}
	ctx, cancel := context.WithTimeout(ctx, w.log.server.Config.Patience)
	defer cancel()
	if err := f(ctx); err != nil {
		return fmt.Errorf("postgres: watch the stores: %w", err)
	}
	return nil
}

// Close closes the connection, at once where it hangs. Its backend may live on then: the next
// writer ends it.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	lost := w.Conn.IsClosed()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := w.Conn.Close(ctx); err != nil || lost {
		w.Conn.Lose()
	}
	return nil
}
