package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func (s *session) public() *pushmeshv1.Session {
	return &pushmeshv1.Session{
		User: s.user, Name: s.name, Generation: s.generation, Edge: s.edge, ConnectionId: uint64(s.conn),
		AttachedAt: s.attachedAt, ExpiresAt: s.expiresAt, CreatedAt: s.createdAt, Origin: s.origin,
	}
}

// GetSession with its cursors.
func (b *Backend) GetSession(ctx context.Context, user, name string, now uint64) (*pushmeshv1.Session, error) {
	var s *session
	var all []*meshv1.SessionCursor
	err := inSnapshot(ctx, b.read, func(tx *sql.Tx) (err error) {
		if s, err = findSession(ctx, tx, user, name, now); err != nil || s == nil {
			return err
		}
		all, err = cursors(ctx, tx, user, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("session %w", backend.ErrNotFound)
	}
	p := s.public()
	for _, c := range all {
		p.Cursors = append(p.Cursors, &pushmeshv1.Cursor{Topic: c.GetTopic(), Epoch: c.GetEpoch(), Floor: c.GetFloor()})
	}
	return p, nil
}

// ListSessions without cursors. A page token is the last (user, name) of the page before, as JSON.
func (b *Backend) ListSessions(ctx context.Context, q backend.SessionQuery, now uint64) (page []*pushmeshv1.Session, next string, err error) {
	var after [2]string
	if q.PageToken != "" {
		if err := json.Unmarshal([]byte(q.PageToken), &after); err != nil {
			return nil, "", fmt.Errorf("%w: bad page token", backend.ErrConflict)
		}
	}
	const query = "SELECT " + sessionColumns + ` FROM session WHERE (user, name) > (?1, ?2) AND (?3 = '' OR user = ?3)
		AND (expires_at = 0 OR expires_at > ?4) ORDER BY user, name LIMIT ?5`
	page, err = collect(ctx, b.read, func(rows *sql.Rows) (*pushmeshv1.Session, error) {
		var s session
		err := rows.Scan(s.fields()...)
		return s.public(), err
	}, query, after[0], after[1], q.User, int64(now), q.Limit)
	if err != nil {
		return nil, "", err
	}
	if q.Sizes {
		if err := b.measure(ctx, page); err != nil {
			return nil, "", err
		}
	}
	if len(page) == q.Limit {
		last := page[q.Limit-1]
		token, err := json.Marshal([2]string{last.GetUser(), last.GetName()})
		if err != nil {
			return nil, "", fmt.Errorf("sqlite: page token: %w", err)
		}
		next = string(token)
	}
	return page, next, nil
}

// ExpireSessions deletes sessions whose time is over.
func (b *Backend) ExpireSessions(ctx context.Context, now uint64, limit int) (deleted []backend.SessionKey, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		over, err := collect(ctx, tx, func(rows *sql.Rows) (s backend.SessionKey, err error) {
			err = rows.Scan(&s.User, &s.Name)
			return s, err
		}, "SELECT user, name FROM session WHERE expires_at > 0 AND expires_at <= ? LIMIT ?", int64(now), limit)
		if err != nil {
			return err
		}
		for _, s := range over {
			if err := deleteSession(ctx, tx, s.User, s.Name); err != nil {
				return err
			}
		}
		deleted = over
		return nil
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// SessionEdges names the edges that hold any session.
func (b *Backend) SessionEdges(ctx context.Context) ([]string, error) {
	return collect(ctx, b.read, value[string], "SELECT DISTINCT edge FROM session WHERE edge <> ''")
}

// DetachEdge lets go of sessions that an edge holds since before now. The edge may live, and its
// clients be connected: empty sessions get their whole TTL as well.
func (b *Backend) DetachEdge(ctx context.Context, edgeID string, now uint64, limit int) (int, error) {
	res, err := b.write.ExecContext(ctx, `UPDATE session SET edge = '', connection = 0, expires_at = ?2 + ttl
		WHERE (user, name) IN (SELECT user, name FROM session WHERE edge = ?1 AND edge <> '' AND attached_at < ?2 LIMIT ?3)`, edgeID, int64(now), limit)
	if err != nil {
		return 0, fmt.Errorf("sqlite: detach edge: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}
