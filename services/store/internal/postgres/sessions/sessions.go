// Package sessions keeps durable sessions: who holds one, its filters, and its positions (cursors).
// Those are written as pages that are only added, and folded into a table now and then.
package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Sessions of a database.
type Sessions struct {
	server     *server.Server
	partitions *partition.Partitions
	pages      *pages
	folder     folder // used under its advisory lock
	metrics    []prometheus.Collector
}

// New registers metrics; Close takes them back.
func New(s *server.Server, p *partition.Partitions) (*Sessions, error) {
	d := &Sessions{server: s, partitions: p, pages: newPages(s)}
	d.folder.Folded = time.Now()
	d.metrics = []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_store_cursors_paged",
			Help: "Cursors of sessions that are kept in packed pages and not in rows of their own, as far as this store has counted.",
		}, func() float64 {
			n, _ := d.pages.size()
			return float64(n)
		}),
		d.folder.counter("packed", &d.folder.packs), d.folder.counter("folded", &d.folder.folds), d.folder.counter("forced", &d.folder.forced),
	}
	return d, s.AddMetrics(d.metrics...)
}

// Close takes the metrics back.
func (d *Sessions) Close() error {
	d.server.RemoveMetrics(d.metrics...)
	return nil
}

const defaultTTL = 7 * 24 * time.Hour

// session is a row of pushmesh.session. edge "": nobody holds it, and expiresAt counts.
type session struct {
	user, name string
	generation uint64
	edge       string
	connection uint64
	attachedAt uint64
	expiresAt  uint64
	ttl        uint64
	born       uint64 // its first generation
	origin     string
	used       bool // a filter or cursor was written once
	// adopted is whose it was before; empty: it always was its owner's.
	adopted sessionKey
}

const sessionColumns = ` user_id, name, generation, edge, connection_id, attached_at, expires_at, ttl, born, origin, used, adopted_user, adopted_name `

func scanSession(row pgx.CollectableRow) (*session, error) {
	var generation, connection, attached, expires, ttl, born int64
	s := &session{}
	err := row.Scan(&s.user, &s.name, &generation, &s.edge, &connection, &attached, &expires, &ttl, &born, &s.origin, &s.used, &s.adopted.user, &s.adopted.name)
	s.generation, s.connection, s.attachedAt = uint64(generation), uint64(connection), uint64(attached)
	s.expiresAt, s.ttl, s.born = uint64(expires), uint64(ttl), uint64(born)
	return s, err
}

// over reports whether nobody holds the session and its time has passed: it counts as absent.
func (s *session) over(now uint64) bool { return s.edge == "" && s.expiresAt <= now }

func (s *session) public() *pushmeshv1.Session {
	out := &pushmeshv1.Session{
		User: s.user, Name: s.name, Generation: s.generation, Edge: s.edge, ConnectionId: s.connection, AttachedAt: s.attachedAt,
		CreatedAt: s.born, Origin: s.origin,
	}
	if s.edge == "" {
		out.ExpiresAt = s.expiresAt
	}
	return out
}

// getSession is nil where there is none. lock is "" or "FOR UPDATE".
func getSession(ctx context.Context, tx pgx.Tx, user, name, lock string) (*session, error) {
	rows, err := tx.Query(ctx, `SELECT`+sessionColumns+`FROM pushmesh.session WHERE user_id = $1 AND name = $2 `+lock, user, name)
	if err != nil {
		return nil, err
	}
	s, err := pgx.CollectExactlyOneRow(rows, scanSession)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // absent
	}
	return s, err
}

// AttachSession raises the generation under the row's lock, and then looks what the session had:
// whoever had it before can write no more.
func (d *Sessions) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest, quota backend.Quota, now uint64) (*meshv1.AttachSessionResponse, error) {
	var s *session // before; nil: there was none
	var generation uint64
	err := d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if req.GetPeek() {
			s, err = getSession(ctx, tx, req.GetUser(), req.GetName(), "")
		} else {
			s, generation, err = raise(ctx, tx, req, quota, now)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case s == nil || s.over(now):
		return &meshv1.AttachSessionResponse{Generation: generation}, nil
	case req.GetPeek():
		generation = s.generation
	}
	resp := &meshv1.AttachSessionResponse{Generation: generation, Resumed: true, PreviousEdge: s.edge, PreviousConnectionId: s.connection}
	if resp.Cursors, err = d.cursorsOf(ctx, s.user, s.name, s.born); err != nil {
		return nil, err
	}
	resp.Filters, err = server.Query(ctx, d.server, pgx.RowTo[string], `SELECT filter FROM pushmesh.session_filter WHERE user_id = $1 AND name = $2 ORDER BY filter`, s.user, s.name)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// raise makes the caller the holder, and says who was.
func raise(ctx context.Context, tx pgx.Tx, req *meshv1.AttachSessionRequest, quota backend.Quota, now uint64) (before *session, generation uint64, err error) {
	ttl := uint64(defaultTTL.Microseconds())
	if req.GetTtlS() != 0 {
		ttl = uint64(req.GetTtlS()) * uint64(time.Second.Microseconds())
	}
	// The row is made first, so that two attaches of a new session wait for each other. One made
	// here is over at once. One that is there may be deleted, or adopted, before it is locked.
	var s *session
	for s == nil {
		if _, err := tx.Exec(ctx, `
		INSERT INTO pushmesh.session (user_id, name, generation, edge, connection_id, attached_at, expires_at, ttl, origin, used)
		VALUES ($1, $2, 0, '', 0, 0, 0, 0, $3, false) ON CONFLICT DO NOTHING`, req.GetUser(), req.GetName(), req.GetOrigin()); err != nil {
			return nil, 0, err
		}
		if s, err = getSession(ctx, tx, req.GetUser(), req.GetName(), "FOR UPDATE"); err != nil {
			return nil, 0, err
		}
	}
	// A new session's first generation is the time, so that it is above that of a deleted one of
	// this name.
	generation = max(now, s.generation+1)
	born, origin, used, adopted := s.born, s.origin, s.used, s.adopted
	if s.over(now) {
		born, origin, used, adopted = generation, req.GetOrigin(), false, sessionKey{}
	}
	if _, err := tx.Exec(ctx, `
		UPDATE pushmesh.session SET generation = $3, edge = $4, connection_id = $5, attached_at = $6, expires_at = 0, ttl = $7, born = $8, origin = $9, used = $10,
			adopted_user = $11, adopted_name = $12
		WHERE user_id = $1 AND name = $2`,
		req.GetUser(), req.GetName(), int64(generation), req.GetEdgeId(), int64(req.GetConnectionId()), int64(now), int64(ttl), int64(born), origin, used,
		adopted.user, adopted.name); err != nil {
		return nil, 0, err
	}
	if s.over(now) {
		if err := admit(ctx, tx, req, quota); err != nil {
			return nil, 0, err
		}
		return s, generation, clearSession(ctx, tx, []string{s.user}, []string{s.name})
	}
	return s, generation, nil
}

// clearSession deletes what belongs to sessions, by their users and names.
func clearSession(ctx context.Context, tx pgx.Tx, users, names []string) error {
	var q pgx.Batch
	for _, table := range []string{"cursor", "session_filter"} {
		q.Queue(`DELETE FROM pushmesh.`+table+` AS c USING unnest($1::text[], $2::text[]) AS s (user_id, name)
			WHERE c.user_id = s.user_id AND c.name = s.name`, users, names)
	}
	return tx.SendBatch(ctx, &q).Close()
}

// GetSession with cursors.
func (d *Sessions) GetSession(ctx context.Context, user, name string, now uint64) (*pushmeshv1.Session, error) {
	var s *session
	err := d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		s, err = getSession(ctx, tx, user, name, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	if s == nil || s.over(now) {
		return nil, backend.ErrNotFound
	}
	cursors, err := d.cursorsOf(ctx, user, name, s.born)
	if err != nil {
		return nil, err
	}
	out := s.public()
	for _, c := range cursors {
		out.Cursors = append(out.Cursors, &pushmeshv1.Cursor{Topic: c.GetTopic(), Epoch: c.GetEpoch(), Floor: c.GetFloor()})
	}
	return out, nil
}

// ListSessions pages by key.
func (d *Sessions) ListSessions(ctx context.Context, q backend.SessionQuery, now uint64) (page []*pushmeshv1.Session, next string, err error) {
	afterUser, afterName, err := storeclient.ParsePageToken(q.PageToken)
	if err != nil {
		return nil, "", err
	}
	found, err := server.Query(ctx, d.server, scanSession, `SELECT`+sessionColumns+`FROM pushmesh.session
		WHERE (user_id, name) > ($1, $2) AND ($3 = '' OR user_id = $3) AND (edge <> '' OR expires_at > $4)
		ORDER BY user_id, name LIMIT $5`, afterUser, afterName, q.User, int64(now), q.Limit+1)
	if err != nil {
		return nil, "", err
	}
	if len(found) > q.Limit {
		found = found[:q.Limit]
		next = storeclient.PageToken(found[q.Limit-1].user, found[q.Limit-1].name)
	}
	for _, s := range found {
		page = append(page, s.public())
	}
	if q.Sizes {
		err = d.measure(ctx, found, page)
	}
	return page, next, err
}

// DeleteSession with everything of it but its dead letters.
func (d *Sessions) DeleteSession(ctx context.Context, user, name string) (edge string, generation uint64, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var held int64
		err := tx.QueryRow(ctx, `DELETE FROM pushmesh.session WHERE user_id = $1 AND name = $2 RETURNING edge, generation`, user, name).Scan(&edge, &held)
		if errors.Is(err, pgx.ErrNoRows) {
			return backend.ErrNotFound
		}
		if err != nil {
			return err
		}
		generation = uint64(held)
		return clearSession(ctx, tx, []string{user}, []string{name})
	})
	return edge, generation, err
}

// ExpireSessions leaves those that somebody is about to change. Sessions go last, for with them go
// their counts, which whoever creates a session waits for.
func (d *Sessions) ExpireSessions(ctx context.Context, now uint64, limit int) (deleted []backend.SessionKey, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT user_id, name FROM pushmesh.session WHERE edge = '' AND expires_at <= $1
			ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED`, int64(now), limit)
		var users, names []string
		var user, name string
		deleted = nil // it may be tried again
		if err := server.Each(rows, err, []any{&user, &name}, func() {
			users, names = append(users, user), append(names, name)
			deleted = append(deleted, backend.SessionKey{User: user, Name: name})
		}); err != nil || len(deleted) == 0 {
			return err
		}
		if err := clearSession(ctx, tx, users, names); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM pushmesh.session AS s USING unnest($1::text[], $2::text[]) AS g (user_id, name)
			WHERE s.user_id = g.user_id AND s.name = g.name`, users, names)
		return err
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// sessionEdges goes from each edge to the next one in the index, past its sessions.
const sessionEdges = `WITH RECURSIVE held AS (
		(SELECT edge FROM pushmesh.session WHERE edge <> '' ORDER BY edge LIMIT 1)
		UNION ALL
		SELECT (SELECT s.edge FROM pushmesh.session AS s WHERE s.edge <> '' AND s.edge > h.edge ORDER BY s.edge LIMIT 1) FROM held AS h WHERE h.edge IS NOT NULL
	) SELECT edge FROM held WHERE edge IS NOT NULL`

// SessionEdges names the edges that hold a session.
func (d *Sessions) SessionEdges(ctx context.Context) ([]string, error) {
	return server.Query(ctx, d.server, pgx.RowTo[string], sessionEdges)
}

// detachEdge lets go of some of an edge's sessions. That the edge has a name is said for the
// planner, which knows only then that the index by edge has them. It is a range of names in order,
// and not an equation, for which there would be no order: so the index is read until there are
// enough, and not as a bitmap of all that the edge holds. What was found is gathered into arrays,
// which the planner takes for short: where it knows that the edge holds a large part of all
// sessions, it would read all of them to find the few.
const detachEdge = `WITH held AS MATERIALIZED (
		SELECT user_id, name FROM pushmesh.session WHERE edge >= $1 AND edge <= $1 AND edge <> '' AND attached_at < $2
		ORDER BY edge LIMIT $3 FOR UPDATE SKIP LOCKED
	), gathered AS MATERIALIZED (SELECT array_agg(user_id) AS users, array_agg(name) AS names FROM held)
	UPDATE pushmesh.session AS s SET edge = '', connection_id = 0, expires_at = $2 + s.ttl
	FROM gathered AS g, unnest(g.users, g.names) AS k (user_id, name) WHERE s.user_id = k.user_id AND s.name = k.name`

// DetachEdge begins the TTL of what a silent edge held. It may live, and its clients be connected:
// empty sessions get their whole TTL as well.
func (d *Sessions) DetachEdge(ctx context.Context, edgeID string, now uint64, limit int) (detached int, err error) {
	err = d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, detachEdge, edgeID, int64(now), limit)
		detached = int(tag.RowsAffected())
		return err
	})
	return detached, err
}
