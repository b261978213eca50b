package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// lasts is how long a session outlives a connection that is known to have ended.
var lasts = "iif(used, ttl, min(ttl, " + strconv.Itoa(backend.EmptyTTL) + "))"

const countAll = "SELECT n FROM session_count WHERE origin = ''"

// admit refuses a session that was created in tx, if there are too many with it.
func admit(ctx context.Context, tx *sql.Tx, req *meshv1.AttachSessionRequest, quota backend.Quota) error {
	quota = quota.For(req.GetUser(), req.GetOrigin())
	look := 0 // sessions of the user
	if quota.User > 0 {
		look = quota.User + 1
	}
	var n backend.Counted
	err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM session WHERE user = ?1 LIMIT ?3)),
		coalesce((SELECT n FROM session_count WHERE origin = ?2), 0), (`+countAll+")", req.GetUser(), req.GetOrigin(), look).Scan(&n.User, &n.Address, &n.All)
	if err != nil {
		return fmt.Errorf("sqlite: count sessions: %w", err)
	}
	return quota.Check(n)
}

// CountSessions asks the count, not the sessions.
func (b *Backend) CountSessions(ctx context.Context) (n int, err error) {
	if err := b.read.QueryRowContext(ctx, countAll).Scan(&n); err != nil {
		return 0, fmt.Errorf("sqlite: count sessions: %w", err)
	}
	return n, nil
}

// measure fills in what sessions keep.
func (b *Backend) measure(ctx context.Context, page []*pushmeshv1.Session) error {
	for _, s := range page {
		err := b.read.QueryRowContext(ctx, `SELECT c.n, f.n, c.bytes + f.bytes FROM
			(SELECT count(*) AS n, coalesce(sum(length(CAST(topic AS BLOB)) + length(cursor)), 0) AS bytes FROM session_cursor WHERE user = ?1 AND name = ?2) AS c,
			(SELECT count(*) AS n, coalesce(sum(length(CAST(filter AS BLOB))), 0) AS bytes FROM session_filter WHERE user = ?1 AND name = ?2) AS f`,
			s.GetUser(), s.GetName()).Scan(&s.CursorCount, &s.FilterCount, &s.KeptBytes)
		if err != nil {
			return fmt.Errorf("sqlite: sizes of sessions: %w", err)
		}
	}
	return nil
}
