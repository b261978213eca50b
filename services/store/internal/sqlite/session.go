package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const defaultTTL = 7 * 24 * time.Hour

// querier is a connection pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// session is a row. conn holds a fixed64 in SQLite's signed integer.
type session struct {
	user, name            string
	generation            uint64
	edge                  string
	conn                  int64
	attachedAt, expiresAt uint64
	createdAt             uint64
	origin                string
	used                  bool // a filter or cursor was written once
	// whose it was before; empty: it always was its owner's
	adopted backend.SessionKey
}

const sessionColumns = "user, name, generation, edge, connection, attached_at, expires_at, created_at, origin, used, adopted_user, adopted_name"

func (s *session) fields() []any {
	return []any{
		&s.user, &s.name, &s.generation, &s.edge, &s.conn, &s.attachedAt, &s.expiresAt, &s.createdAt, &s.origin, &s.used,
		&s.adopted.User, &s.adopted.Name,
	}
}

// findSession finds a session that is held or whose time is not over; nil where there is none.
func findSession(ctx context.Context, q querier, user, name string, now uint64) (*session, error) {
	var s session
	err := q.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM session WHERE user = ? AND name = ? AND (expires_at = 0 OR expires_at > ?)",
		user, name, int64(now)).Scan(s.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: session: %w", err)
	}
	return &s, nil
}

// AttachSession makes the caller the holder.
func (b *Backend) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest, quota backend.Quota, now uint64) (resp *meshv1.AttachSessionResponse, err error) {
	if req.GetPeek() {
		err = inSnapshot(ctx, b.read, func(tx *sql.Tx) error {
			resp, err = attachAnswer(ctx, tx, req, now)
			return err
		})
		return resp, err
	}
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		if resp, err = attachAnswer(ctx, tx, req, now); err != nil {
			return err
		}
		if resp.GetResumed() {
			resp.Generation++
		} else {
			if err := deleteSession(ctx, tx, req.GetUser(), req.GetName()); err != nil {
				return err
			}
			resp.Generation = now
		}
		ttl := time.Duration(req.GetTtlS()) * time.Second
		if ttl == 0 {
			ttl = defaultTTL
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO session (user, name, generation, edge, connection, attached_at, ttl, expires_at, created_at, origin, used)
			VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, 0)
			ON CONFLICT (user, name) DO UPDATE SET generation = excluded.generation, edge = excluded.edge, connection = excluded.connection,
			attached_at = excluded.attached_at, ttl = excluded.ttl, expires_at = 0`,
			req.GetUser(), req.GetName(), int64(resp.GetGeneration()), req.GetEdgeId(), int64(req.GetConnectionId()), int64(now), ttl.Microseconds(),
			int64(now), req.GetOrigin())
		if err != nil {
			return fmt.Errorf("sqlite: attach: %w", err)
		}
		if resp.GetResumed() {
			return nil
		}
		return admit(ctx, tx, req, quota)
	})
	return resp, err
}

// attachAnswer tells of a session as it is before the attach.
func attachAnswer(ctx context.Context, q querier, req *meshv1.AttachSessionRequest, now uint64) (*meshv1.AttachSessionResponse, error) {
	resp := &meshv1.AttachSessionResponse{}
	s, err := findSession(ctx, q, req.GetUser(), req.GetName(), now)
	if err != nil || s == nil {
		return resp, err
	}
	resp.Generation, resp.Resumed = s.generation, true
	resp.PreviousEdge, resp.PreviousConnectionId = s.edge, uint64(s.conn)
	if resp.Cursors, err = cursors(ctx, q, s.user, s.name); err != nil {
		return nil, err
	}
	resp.Filters, err = collect(ctx, q, value[string], "SELECT filter FROM session_filter WHERE user = ? AND name = ? ORDER BY filter", s.user, s.name)
	return resp, err
}

func cursors(ctx context.Context, q querier, user, name string) ([]*meshv1.SessionCursor, error) {
	return collect(ctx, q, func(rows *sql.Rows) (*meshv1.SessionCursor, error) {
		var packed sql.RawBytes
		c := &meshv1.SessionCursor{}
		if err := rows.Scan(&packed); err != nil {
			return nil, err
		}
		return c, proto.Unmarshal(packed, c)
	}, "SELECT cursor FROM session_cursor WHERE user = ? AND name = ? ORDER BY topic", user, name)
}

// deleteSession deletes what there is of a session.
func deleteSession(ctx context.Context, tx *sql.Tx, user, name string) error {
	for _, table := range []string{"session", "session_cursor", "session_filter"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE user = ? AND name = ?", user, name); err != nil {
			return fmt.Errorf("sqlite: delete session: %w", err)
		}
	}
	return nil
}

// DeleteSession deletes a session.
func (b *Backend) DeleteSession(ctx context.Context, user, name string) (edge string, generation uint64, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		s, err := findSession(ctx, tx, user, name, 0)
		if err != nil {
			return err
		}
		if s == nil {
			return fmt.Errorf("session %w", backend.ErrNotFound)
		}
		edge, generation = s.edge, s.generation
		return deleteSession(ctx, tx, user, name)
	})
	return edge, generation, err
}
