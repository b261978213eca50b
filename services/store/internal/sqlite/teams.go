package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// teamTx is a change of teams.
type teamTx struct {
	tx   *sql.Tx
	last uint64 // the version so far
}

// exec runs a statement, and says how many rows it has changed.
func (c *teamTx) exec(ctx context.Context, query string, args ...any) (int, error) {
	done, err := c.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: teams: %w", err)
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// one reads a single value; false where there is no row.
func (c *teamTx) one(ctx context.Context, v any, query string, args ...any) (bool, error) {
	switch err := c.tx.QueryRowContext(ctx, query, args...).Scan(v); {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("sqlite: teams: %w", err)
	}
	return true, nil
}

// there is a team; ErrNotFound where there is none.
func (c *teamTx) there(ctx context.Context, name string) (*pushmeshv1.Team, error) {
	all, err := collect(ctx, c.tx, teamEntry, "SELECT "+teamColumns+" FROM team_entry WHERE team = ? AND user = '' AND NOT removed", name)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("team %s %w", name, backend.ErrNotFound)
	}
	return all[0].GetTeam(), nil
}

// changeTeams runs f, and keeps the version that it ends with.
func (b *Backend) changeTeams(ctx context.Context, f func(c *teamTx) error) (version uint64, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		c := &teamTx{tx: tx}
		if _, err := c.one(ctx, &c.last, "SELECT version FROM team_version"); err != nil {
			return err
		}
		before := c.last
		if err := f(c); err != nil {
			return err
		}
		if version = c.last; version == before {
			return nil
		}
		if _, err := c.exec(ctx, "UPDATE team_version SET version = ?", int64(version)); err != nil {
			return err
		}
		var gone int64
		found, err := c.one(ctx, &gone, "SELECT version FROM team_entry WHERE removed ORDER BY version DESC LIMIT 1 OFFSET ?", backend.MaxRemovedTeams)
		if err != nil || !found {
			return err
		}
		if _, err := c.exec(ctx, "DELETE FROM team_entry WHERE removed AND version <= ?", gone); err != nil {
			return err
		}
		_, err = c.exec(ctx, "UPDATE team_version SET gone = max(gone, ?)", gone)
		return err
	})
	return version, err
}

// PutTeam keeps when a team was made.
func (b *Backend) PutTeam(ctx context.Context, t *pushmeshv1.Team) (version uint64, before *pushmeshv1.Team, err error) {
	grants, err := backend.TeamGrants(t)
	if err != nil {
		return 0, nil, err
	}
	version, err = b.changeTeams(ctx, func(c *teamTx) error {
		var err error
		if before, err = c.there(ctx, t.GetName()); err != nil && !errors.Is(err, backend.ErrNotFound) {
			return err
		}
		c.last++
		if _, err := c.exec(ctx, "INSERT INTO team_entry AS t (team, user, removed, version, born, grants) VALUES (?1, '', 0, ?2, ?2, ?3) "+
			"ON CONFLICT (team, user) DO UPDATE SET removed = 0, version = excluded.version, grants = excluded.grants, "+
			"born = CASE WHEN t.removed THEN excluded.born ELSE t.born END", t.GetName(), int64(c.last), grants); err != nil {
			return err
		}
		var n int
		if _, err := c.one(ctx, &n, "SELECT count(*) FROM team_entry WHERE user = '' AND NOT removed"); err != nil {
			return err
		}
		return backend.RoomForTeams(n, 0)
	})
	return version, before, err
}

// DeleteTeam keeps the row of the team alone.
func (b *Backend) DeleteTeam(ctx context.Context, name string) (version uint64, before *pushmeshv1.Team, err error) {
	version, err = b.changeTeams(ctx, func(c *teamTx) error {
		var err error
		if before, err = c.there(ctx, name); err != nil {
			return err
		}
		c.last++
		if _, err := c.exec(ctx, "UPDATE team_entry SET removed = 1, version = ?, grants = x'' WHERE team = ? AND user = ''", int64(c.last), name); err != nil {
			return err
		}
		_, err = c.exec(ctx, "DELETE FROM team_entry WHERE team = ? AND user <> ''", name)
		return err
	})
	return version, before, err
}

// AddMembers looks at how many there are once they are added.
func (b *Backend) AddMembers(ctx context.Context, name string, users []string) (changed int, version uint64, err error) {
	version, err = b.changeTeams(ctx, func(c *teamTx) error {
		changed = 0
		if _, err := c.there(ctx, name); err != nil {
			return err
		}
		for _, user := range users {
			n, err := c.exec(ctx, "INSERT INTO team_entry AS t (team, user, removed, version, born, grants) VALUES (?, ?, 0, ?, 0, x'') "+
				"ON CONFLICT (team, user) DO UPDATE SET removed = 0, version = excluded.version WHERE t.removed", name, user, int64(c.last+1))
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			changed++
			c.last++
			var teams int
			if _, err := c.one(ctx, &teams, "SELECT count(*) FROM team_entry WHERE user = ? AND NOT removed", user); err != nil {
				return err
			}
			if teams > team.MaxOfUser {
				return backend.TooManyOfUser(user)
			}
		}
		if changed == 0 {
			return nil
		}
		var n int
		if _, err := c.one(ctx, &n, "SELECT count(*) FROM team_entry WHERE user <> '' AND NOT removed"); err != nil {
			return err
		}
		return backend.RoomForTeams(0, n)
	})
	return changed, version, err
}

// RemoveMembers keeps their rows.
func (b *Backend) RemoveMembers(ctx context.Context, name string, users []string) (changed int, version uint64, err error) {
	version, err = b.changeTeams(ctx, func(c *teamTx) error {
		changed = 0
		if _, err := c.there(ctx, name); err != nil {
			return err
		}
		for _, user := range users {
			n, err := c.exec(ctx, "UPDATE team_entry SET removed = 1, version = ? WHERE team = ? AND user = ? AND user <> '' AND NOT removed", int64(c.last+1), name, user)
			if err != nil {
				return err
			}
			changed += n
			c.last += uint64(n)
		}
		return nil
	})
	return changed, version, err
}

const teamColumns = "team, user, removed, version, born, grants"

func teamEntry(rows *sql.Rows) (*meshv1.TeamEntry, error) {
	var name, user string
	var removed bool
	var version, born uint64
	var grants []byte
	if err := rows.Scan(&name, &user, &removed, &version, &born, &grants); err != nil {
		return nil, err
	}
	return backend.KeptTeam(name, user, removed, version, born, grants)
}

// FindTeams reads one page.
func (b *Backend) FindTeams(ctx context.Context, name, user, after string, limit int) ([]*meshv1.TeamEntry, error) {
	where, args := "user = '' AND team > ?", []any{after}
	switch {
	case name != "":
		where, args = "team = ? AND user > ?", []any{name, after}
	case user != "":
		where, args = "user = ? AND team > ?", []any{user, after}
	}
	return collect(ctx, b.read, teamEntry, "SELECT "+teamColumns+" FROM team_entry WHERE NOT removed AND "+where+" ORDER BY team, user LIMIT ?", append(args, limit)...)
}

// FollowTeams reads versions and page from one snapshot.
func (b *Backend) FollowTeams(ctx context.Context, have, begun uint64, limit int) (page backend.TeamsPage, err error) {
	err = inSnapshot(ctx, b.read, func(tx *sql.Tx) error {
		var version, gone uint64
		if err := tx.QueryRowContext(ctx, "SELECT version, gone FROM team_version").Scan(&version, &gone); err != nil {
			return fmt.Errorf("sqlite: teams: %w", err)
		}
		if version == have {
			page = backend.TeamsPage{Version: have, Newest: have}
			return nil
		}
		anew := have > version || have != 0 && gone > max(have, begun)
		if anew {
			have = 0
		}
		all, err := collect(ctx, tx, teamEntry, "SELECT "+teamColumns+" FROM team_entry WHERE version > ? ORDER BY version LIMIT ?", int64(have), limit+1)
		page = backend.PageOfTeams(version, anew, all, limit)
		return err
	})
	return page, err
}
