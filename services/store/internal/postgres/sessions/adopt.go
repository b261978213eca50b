package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

const (
	// adoptTries is how often an adoption begins anew, where somebody attaches to the session
	// meanwhile or writes of cursors take long.
	adoptTries = 5
	adoptRetry = 500 * time.Millisecond
	// settled is how long ago a holder must have let go so that nothing of it is on its way any
	// more: no statement takes so long.
	settled = time.Minute
)

// errMoved: the session is not what it was when the adoption began.
var errMoved = errors.New("the session was attached meanwhile")

// AdoptSession takes the session from its holder, waits for the cursors that it is writing, and
// moves all of it in one transaction if nobody attached meanwhile. A cursor that were committed
// after the move would stay behind: where a topic's first one is lost, so are its messages.
func (d *Sessions) AdoptSession(ctx context.Context, a backend.Adoption, now uint64) (done backend.Adopted, err error) {
	edge, began := "", time.Now()
	for range adoptTries {
		var s *session
		if s, done, err = d.takeForAdoption(ctx, a, now); err != nil || done.Already || a.DryRun {
			return done, err
		}
		// who held it when it was taken first holds nothing, and is to be told
		edge = cmp.Or(done.Edge, edge)
		done.Edge = edge
		if err = d.settle(ctx, s, now); err == nil {
			// while it waited a session of the new name may have come and gone
			err = d.move(ctx, s, a, max(now+uint64(time.Since(began).Microseconds()), done.Generation+1), done.Generation, now)
		}
		if !errors.Is(err, errMoved) {
			return done, err
		}
	}
	return done, code.Retry(wirev1.Code_CODE_UNAVAILABLE, adoptRetry, "adopt session: "+err.Error())
}

// takeForAdoption checks, and lets go of the session under a new generation. It answers with the
// session as it was.
func (d *Sessions) takeForAdoption(ctx context.Context, a backend.Adoption, now uint64) (s *session, done backend.Adopted, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if s, done, err = adoptable(ctx, tx, a, now); err != nil || done.Already || a.DryRun {
			return err
		}
		done.Generation = max(now, s.generation+1)
		_, err := tx.Exec(ctx, `UPDATE pushmesh.session SET generation = $3, edge = '', connection_id = 0, expires_at = $4 WHERE user_id = $1 AND name = $2`,
			s.user, s.name, int64(done.Generation), int64(now+s.ttl))
		return err
	})
	return s, done, err
}

// adoptable locks both sessions, in the order of their keys, and looks whether the one may become
// the other. A dry run locks nothing.
func adoptable(ctx context.Context, tx pgx.Tx, a backend.Adoption, now uint64) (s *session, done backend.Adopted, err error) {
	lock := "FOR UPDATE"
	if a.DryRun {
		lock = ""
	}
	rows, err := tx.Query(ctx, `SELECT`+sessionColumns+`FROM pushmesh.session
		WHERE (user_id, name) IN (($1, $2), ($3, $4)) ORDER BY user_id, name `+lock, a.From.User, a.From.Name, a.To.User, a.To.Name)
	if err != nil {
		return nil, done, err
	}
	found, err := pgx.CollectRows(rows, scanSession)
	if err != nil {
		return nil, done, err
	}
	var to *session
	for _, one := range found {
		switch {
		case one.over(now):
		case one.user == a.From.User && one.name == a.From.Name:
			s = one
		default:
			to = one
		}
	}
	switch {
	case s == nil && to != nil && to.adopted == (sessionKey{a.From.User, a.From.Name}):
		return nil, backend.Adopted{Already: true}, nil
	case s == nil:
		return nil, done, fmt.Errorf("session %w", backend.ErrNotFound)
	case to != nil:
		return nil, done, fmt.Errorf("session %q of %q %w", a.To.Name, a.To.User, backend.ErrExists)
	}
	return s, backend.Adopted{Edge: s.edge, Generation: s.generation}, nil
}

// settle waits until what the session's holder was writing is committed, or refused.
func (d *Sessions) settle(ctx context.Context, s *session, now uint64) error {
	if s.edge == "" && s.expiresAt+uint64(settled.Microseconds()) < now+s.lasts() {
		return nil
	}
	return d.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, ok, err := partition.CursorPages.Cut(ctx, conn.Conn())
		if err == nil && !ok {
			err = fmt.Errorf("writes of cursors take long: %w", errMoved)
		}
		return err
	})
}

// move makes the session that was taken under a generation another owner's, which begins under
// another one that no session of its name had.
func (d *Sessions) move(ctx context.Context, s *session, a backend.Adoption, generation, taken, now uint64) error {
	cursors, err := d.cursorsOf(ctx, s.user, s.name, s.born)
	if err != nil {
		return err
	}
	p := newPage(len(cursors))
	p.take(&meshv1.SessionWrite{User: a.To.User, Name: a.To.Name, Generation: generation, Cursors: cursors})
	return d.partitions.Append(ctx, func() error {
		err := d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			still, done, err := adoptable(ctx, tx, a, now)
			switch {
			case err != nil || done.Already: // an answer that was lost
				return err
			case still.generation != taken || still.edge != "":
				return errMoved
			}
			return tx.SendBatch(ctx, moveBatch(s, a, p, generation, now)).Close()
		})
		if server.SQLState(err) == server.UniqueViolation {
			return errMoved // somebody attached to the new owner's in that moment
		}
		return err
	})
}

func moveBatch(s *session, a backend.Adoption, p *page, generation, now uint64) *pgx.Batch {
	q := &pgx.Batch{}
	q.Queue(`DELETE FROM pushmesh.cursor WHERE (user_id, name) IN (($1, $2), ($3, $4))`, s.user, s.name, a.To.User, a.To.Name)
	// what is left of one whose time is over
	q.Queue(`DELETE FROM pushmesh.session_filter WHERE user_id = $1 AND name = $2`, a.To.User, a.To.Name)
	q.Queue(`DELETE FROM pushmesh.session WHERE user_id = $1 AND name = $2 AND edge = '' AND expires_at <= $3`, a.To.User, a.To.Name, int64(now))
	q.Queue(`UPDATE pushmesh.session SET user_id = $3, name = $4, generation = $5, born = $5, expires_at = $6, adopted_user = $1, adopted_name = $2
		WHERE user_id = $1 AND name = $2`, s.user, s.name, a.To.User, a.To.Name, int64(generation), int64(now+s.lasts()))
	if s.origin != "" {
		q.Queue(moveCount, s.origin, s.user+s.name, a.To.User+a.To.Name)
		q.Queue(`DELETE FROM pushmesh.session_count WHERE n = 0 AND origin = $1`, s.origin)
	}
	q.Queue(`UPDATE pushmesh.session_filter SET user_id = $3, name = $4 WHERE user_id = $1 AND name = $2`, s.user, s.name, a.To.User, a.To.Name)
	if p.len() > 0 {
		q.Queue(insertPage, p.args()...)
	}
	// A letter that the new owner has already, of a former session, stays where it is.
	q.Queue(`UPDATE pushmesh.dead_letter AS l SET user_id = $3, session = $4 WHERE user_id = $1 AND session = $2 AND NOT EXISTS (
		SELECT FROM pushmesh.dead_letter AS o WHERE o.user_id = $3 AND o.session = $4 AND o.topic = l.topic AND o.epoch = l.epoch AND o.seq = l.seq)`,
		s.user, s.name, a.To.User, a.To.Name)
	return q
}

// moveCount moves the count of an origin to the slot where the trigger will take it away: slots
// that never fall to 0 stay for ever.
const moveCount = `INSERT INTO pushmesh.session_count AS c (origin, slot, n)
	SELECT $1, slot, sum(n) FROM (VALUES (hashtext($2) & 63, -1), (hashtext($3) & 63, 1)) AS v (slot, n) GROUP BY slot ORDER BY slot
	ON CONFLICT (origin, slot) DO UPDATE SET n = c.n + excluded.n`
