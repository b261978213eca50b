package sessions

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// lasts is how long the session outlives a connection that is known to have ended.
func (s *session) lasts() uint64 {
	if s.used {
		return s.ttl
	}
	return min(s.ttl, backend.EmptyTTL)
}

const (
	countAll = `SELECT coalesce(sum(n), 0)::bigint FROM pushmesh.session_count WHERE origin = ''`
	// countNew looks at no more of a user's sessions than the bound needs.
	countNew = `SELECT (SELECT count(*) FROM (SELECT FROM pushmesh.session WHERE user_id = $1 LIMIT $3) AS mine),
		(SELECT coalesce(sum(n), 0)::bigint FROM pushmesh.session_count WHERE origin = $2), (` + countAll + `)`
)

// admit refuses a session that was created in tx, if there are too many with it.
func admit(ctx context.Context, tx pgx.Tx, req *meshv1.AttachSessionRequest, quota backend.Quota) error {
	quota = quota.For(req.GetUser(), req.GetOrigin())
	if quota == (backend.Quota{}) {
		return nil
	}
	look := 0 // sessions of the user
	if quota.User > 0 {
		look = quota.User + 1
	}
	var n backend.Counted
	if err := tx.QueryRow(ctx, countNew, req.GetUser(), req.GetOrigin(), look).Scan(&n.User, &n.Address, &n.All); err != nil {
		return err
	}
	return quota.Check(n)
}

// CountSessions asks the counts, not the sessions.
func (d *Sessions) CountSessions(ctx context.Context) (n int, err error) {
	err = d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return conn.QueryRow(ctx, countAll).Scan(&n) })
	return n, err
}

// size of what a session keeps.
type size struct{ cursors, bytes uint64 }

// Bytes of a cursor, and of a filter.
const (
	cursorSize = 40 // beside its topic and its lists
	filterSize = 24 // beside the filter
)

// measure fills in what sessions keep; page has them in the same order. Positions in pages are
// compared with those in the table one by one, as they come.
func (d *Sessions) measure(ctx context.Context, all []*session, page []*pushmeshv1.Session) error {
	if err := d.pages.sync(ctx); err != nil {
		return err
	}
	users, names := make([]string, len(all)), make([]string, len(all))
	paged := make([]map[string]*cursor, len(all))
	for i, s := range all {
		users[i], names[i] = s.user, s.name
		for _, c := range d.pages.of(sessionKey{s.user, s.name}) {
			if paged[i] == nil {
				paged[i] = map[string]*cursor{}
			}
			paged[i][c.topic] = &c.cursor
		}
	}
	var tally []size
	add := func(i int, c *cursor, lists int) {
		if c.generation >= all[i].born && c.lists != removed {
			tally[i].cursors++
			tally[i].bytes += uint64(cursorSize + len(c.topic) + lists)
		}
	}
	err := d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tally = make([]size, len(all)) // it may be asked again
		rows, err := conn.Query(ctx, `
			SELECT w.i::int - 1, c.topic, c.generation, c.version,
				CASE WHEN c.acked = '{}' AND c.tried = '{}' THEN 0 ELSE octet_length(c.acked::text) + octet_length(c.tried::text) + octet_length(c.attempts::text) + 2 END
			FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (user_id, name, i)
			JOIN pushmesh.cursor AS c ON c.user_id = w.user_id AND c.name = w.name`, users, names)
		var i, lists int
		var topic string
		var generation, version int64
		return server.Each(rows, err, []any{&i, &topic, &generation, &version, &lists}, func() {
			c := &cursor{topic: topic, generation: uint64(generation), version: uint64(version)}
			newer := paged[i][topic]
			switch {
			case newer == nil:
				add(i, c, lists)
			case newer.before(c):
				newer.lists = removed // it is counted here
				add(i, c, lists)
			}
		})
	})
	if err != nil {
		return err
	}
	for i, cursors := range paged {
		for _, c := range cursors {
			add(i, c, len(c.lists))
		}
		page[i].CursorCount, page[i].KeptBytes = tally[i].cursors, tally[i].bytes
	}
	return d.measureFilters(ctx, users, names, page)
}

func (d *Sessions) measureFilters(ctx context.Context, users, names []string, page []*pushmeshv1.Session) error {
	return d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `
			SELECT w.i::int - 1, count(*), sum(octet_length(f.filter))::bigint FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (user_id, name, i)
			JOIN pushmesh.session_filter AS f ON f.user_id = w.user_id AND f.name = w.name GROUP BY w.i`, users, names)
		var i, n int
		var bytes int64
		return server.Each(rows, err, []any{&i, &n, &bytes}, func() {
			page[i].FilterCount = uint64(n)
			page[i].KeptBytes += uint64(filterSize*n) + uint64(bytes)
		})
	})
}
