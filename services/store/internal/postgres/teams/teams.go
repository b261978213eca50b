// Package teams keeps teams and the users in them.
package teams

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Teams of a database.
type Teams struct{ server *server.Server }

// New is ready to be used.
func New(s *server.Server) *Teams { return &Teams{s} }

// change runs f with the last version, and keeps the version that f ends with. It locks the row of
// the version: changes are committed in the order of their versions.
func (d *Teams) change(ctx context.Context, f func(ctx context.Context, tx pgx.Tx, last int64) (next int64, err error)) (version uint64, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var last int64
		if err := tx.QueryRow(ctx, `SELECT version FROM pushmesh.team_version FOR UPDATE`).Scan(&last); err != nil {
			return err
		}
		next, err := f(ctx, tx, last)
		if version = uint64(next); err != nil || next == last {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE pushmesh.team_version SET version = $1`, next); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `WITH last AS (SELECT version FROM pushmesh.team_entry WHERE removed ORDER BY version DESC OFFSET $1 LIMIT 1),
			forgotten AS (DELETE FROM pushmesh.team_entry WHERE removed AND version <= (SELECT version FROM last))
			UPDATE pushmesh.team_version SET gone = greatest(gone, last.version) FROM last`, backend.MaxRemovedTeams)
		return err
	})
	return version, err
}

// PutTeam keeps when a team was made.
func (d *Teams) PutTeam(ctx context.Context, t *pushmeshv1.Team) (version uint64, before *pushmeshv1.Team, err error) {
	grants, err := backend.TeamGrants(t)
	if err != nil {
		return 0, nil, err
	}
	version, err = d.change(ctx, func(ctx context.Context, tx pgx.Tx, last int64) (int64, error) {
		var err error
		if before, err = there(ctx, tx, t.GetName()); err != nil && !errors.Is(err, backend.ErrNotFound) {
			return last, err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO pushmesh.team_entry AS t (team, user_id, removed, version, born, grants) VALUES ($1, '', false, $2, $2, $3)
			ON CONFLICT (team, user_id) DO UPDATE SET removed = false, version = excluded.version, grants = excluded.grants,
				born = CASE WHEN t.removed THEN excluded.born ELSE t.born END`, t.GetName(), last+1, grants); err != nil {
			return last, err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM pushmesh.team_entry WHERE user_id = '' AND NOT removed`).Scan(&n); err != nil {
			return last, err
		}
		return last + 1, backend.RoomForTeams(n, 0)
	})
	return version, before, err
}

// DeleteTeam keeps the row of the team alone.
func (d *Teams) DeleteTeam(ctx context.Context, name string) (version uint64, before *pushmeshv1.Team, err error) {
	version, err = d.change(ctx, func(ctx context.Context, tx pgx.Tx, last int64) (int64, error) {
		var err error
		if before, err = there(ctx, tx, name); err != nil {
			return last, err
		}
		if _, err := tx.Exec(ctx, `UPDATE pushmesh.team_entry SET removed = true, version = $2, grants = '' WHERE team = $1 AND user_id = ''`, name, last+1); err != nil {
			return last, err
		}
		_, err = tx.Exec(ctx, `DELETE FROM pushmesh.team_entry WHERE team = $1 AND user_id <> ''`, name)
		return last + 1, err
	})
	return version, before, err
}

// there is a team; ErrNotFound where there is none.
func there(ctx context.Context, tx pgx.Tx, name string) (*pushmeshv1.Team, error) {
	rows, err := tx.Query(ctx, `SELECT `+columns+` FROM pushmesh.team_entry WHERE team = $1 AND user_id = '' AND NOT removed`, name)
	if err != nil {
		return nil, err
	}
	switch e, err := pgx.CollectExactlyOneRow(rows, scan); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("team %s %w", name, backend.ErrNotFound)
	case err != nil:
		return nil, err
	default:
		return e.GetTeam(), nil
	}
}

// AddMembers looks at how many there are once they are added.
func (d *Teams) AddMembers(ctx context.Context, name string, users []string) (changed int, version uint64, err error) {
	version, err = d.change(ctx, func(ctx context.Context, tx pgx.Tx, last int64) (int64, error) {
		if _, err := there(ctx, tx, name); err != nil {
			return last, err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO pushmesh.team_entry AS t (team, user_id, removed, version, born, grants)
			SELECT $1, u.name, false, $3::bigint + u.place, 0, '' FROM unnest($2::text[]) WITH ORDINALITY AS u (name, place)
			ON CONFLICT (team, user_id) DO UPDATE SET removed = false, version = excluded.version WHERE t.removed`, name, users, last)
		if changed = int(tag.RowsAffected()); err != nil || changed == 0 {
			return last, err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM pushmesh.team_entry WHERE user_id <> '' AND NOT removed`).Scan(&n); err != nil {
			return last, err
		}
		if err := backend.RoomForTeams(0, n); err != nil {
			return last, err
		}
		var user string
		err = tx.QueryRow(ctx, `SELECT user_id FROM pushmesh.team_entry WHERE user_id = ANY ($1) AND NOT removed GROUP BY user_id HAVING count(*) > $2 LIMIT 1`,
			users, team.MaxOfUser).Scan(&user)
		switch {
		case err == nil:
			err = backend.TooManyOfUser(user)
		case errors.Is(err, pgx.ErrNoRows):
			err = nil
		}
		return last + int64(len(users)), err
	})
	return changed, version, err
}

// RemoveMembers keeps their rows.
func (d *Teams) RemoveMembers(ctx context.Context, name string, users []string) (changed int, version uint64, err error) {
	version, err = d.change(ctx, func(ctx context.Context, tx pgx.Tx, last int64) (int64, error) {
		if _, err := there(ctx, tx, name); err != nil {
			return last, err
		}
		tag, err := tx.Exec(ctx, `UPDATE pushmesh.team_entry t SET removed = true, version = $3::bigint + u.place
			FROM unnest($2::text[]) WITH ORDINALITY AS u (name, place) WHERE t.team = $1 AND t.user_id = u.name AND t.user_id <> '' AND NOT t.removed`, name, users, last)
		if changed = int(tag.RowsAffected()); err != nil || changed == 0 {
			return last, err
		}
		return last + int64(len(users)), nil
	})
	return changed, version, err
}

const columns = `team, user_id, removed, version, born, grants`

func scan(row pgx.CollectableRow) (*meshv1.TeamEntry, error) {
	var name, user string
	var removed bool
	var version, born int64
	var grants []byte
	if err := row.Scan(&name, &user, &removed, &version, &born, &grants); err != nil {
		return nil, err
	}
	return backend.KeptTeam(name, user, removed, uint64(version), uint64(born), grants)
}

// FindTeams reads one page.
func (d *Teams) FindTeams(ctx context.Context, name, user, after string, limit int) (all []*meshv1.TeamEntry, err error) {
	where, args := `user_id = '' AND team > $1`, []any{after, limit}
	switch {
	case name != "":
		where, args = `team = $3 AND user_id > $1`, append(args, name)
	case user != "":
		where, args = `user_id = $3 AND team > $1`, append(args, user)
	}
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+columns+` FROM pushmesh.team_entry WHERE NOT removed AND `+where+` ORDER BY team, user_id LIMIT $2`, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// FollowTeams reads the version first: what it names is in the database by then. It reads last up
// to where removed rows are gone: what the page lacks for that is below it by then.
func (d *Teams) FollowTeams(ctx context.Context, have, begun uint64, limit int) (page backend.TeamsPage, err error) {
	err = d.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var version int64
		if err := tx.QueryRow(ctx, `SELECT version FROM pushmesh.team_version`).Scan(&version); err != nil {
			return err
		}
		if uint64(version) == have {
			page = backend.TeamsPage{Version: have, Newest: have}
			return nil
		}
		read := func(since uint64, anew bool) error {
			rows, err := tx.Query(ctx, `SELECT `+columns+` FROM pushmesh.team_entry WHERE version > $1 ORDER BY version LIMIT $2`, int64(since), limit+1)
			if err != nil {
				return err
			}
			all, err := pgx.CollectRows(rows, scan)
			page = backend.PageOfTeams(uint64(version), anew, all, limit)
			return err
		}
		if have > uint64(version) {
			return read(0, true)
		}
		if err := read(have, false); err != nil || have == 0 {
			return err
		}
		var gone int64
		if err := tx.QueryRow(ctx, `SELECT gone FROM pushmesh.team_version`).Scan(&gone); err != nil {
			return err
		}
		if uint64(gone) > max(have, begun) {
			return read(0, true)
		}
		return nil
	})
	return page, err
}
