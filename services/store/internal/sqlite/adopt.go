package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// AdoptSession gives a session to another owner.
func (b *Backend) AdoptSession(ctx context.Context, a backend.Adoption, now uint64) (done backend.Adopted, err error) {
	if a.DryRun {
		err = inSnapshot(ctx, b.read, func(tx *sql.Tx) error {
			_, done, err = adoptable(ctx, tx, a, now)
			return err
		})
		return done, err
	}
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		var s *session
		if s, done, err = adoptable(ctx, tx, a, now); err != nil || done.Already {
			return err
		}
		done.Generation++
		return s.adopt(ctx, tx, a, now)
	})
	return done, err
}

// adoptable looks whether a session may be given to another owner.
func adoptable(ctx context.Context, q querier, a backend.Adoption, now uint64) (*session, backend.Adopted, error) {
	s, err := findSession(ctx, q, a.From.User, a.From.Name, now)
	if err != nil {
		return nil, backend.Adopted{}, err
	}
	to, err := findSession(ctx, q, a.To.User, a.To.Name, now)
	switch {
	case err != nil:
		return nil, backend.Adopted{}, err
	case s == nil && to != nil && to.adopted == a.From:
		return nil, backend.Adopted{Already: true}, nil
	case s == nil:
		return nil, backend.Adopted{}, fmt.Errorf("session %w", backend.ErrNotFound)
	case to != nil:
		return nil, backend.Adopted{}, fmt.Errorf("session %q of %q %w", a.To.Name, a.To.User, backend.ErrExists)
	}
	return s, backend.Adopted{Edge: s.edge, Generation: s.generation}, nil
}

// adopt makes all that is of a session another owner's, under a generation that neither its holder
// nor that of a former session of the new name has.
func (s *session) adopt(ctx context.Context, tx *sql.Tx, a backend.Adoption, now uint64) error {
	if err := deleteSession(ctx, tx, a.To.User, a.To.Name); err != nil { // one whose time is over
		return err
	}
	generation := int64(max(now, s.generation+1))
	if _, err := tx.ExecContext(ctx, `UPDATE session SET user = ?3, name = ?4, generation = ?5, edge = '', connection = 0, expires_at = ?6 + `+lasts+`,
		created_at = ?6, adopted_user = ?1, adopted_name = ?2 WHERE user = ?1 AND name = ?2`,
		a.From.User, a.From.Name, a.To.User, a.To.Name, generation, int64(now)); err != nil {
		return fmt.Errorf("sqlite: adopt session: %w", err)
	}
	// A dead letter that the new owner has already, of a former session, stays where it is.
	for _, update := range []string{
		"UPDATE session_cursor SET user = ?3, name = ?4 WHERE user = ?1 AND name = ?2",
		"UPDATE session_filter SET user = ?3, name = ?4 WHERE user = ?1 AND name = ?2",
		"UPDATE OR IGNORE dead_letter SET user = ?3, session = ?4 WHERE user = ?1 AND session = ?2",
	} {
		if _, err := tx.ExecContext(ctx, update, a.From.User, a.From.Name, a.To.User, a.To.Name); err != nil {
			return fmt.Errorf("sqlite: adopt session: %w", err)
		}
	}
	return nil
}
