package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Placement says where a shard's data is.
type Placement struct {
	Shard    int
	Database string
	// Moving: nobody shall own it.
	Moving bool
}

// Register says which database of its mesh this is. The first time that one is opened as another
// than home, it gives up all shards, which must be empty. A database that is known by another name
// is refused: connection strings were mixed up.
func (l *Log) Register(ctx context.Context, name string) error {
	return l.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE pushmesh.database`); err != nil {
			return err
		}
		var known string
		err := tx.QueryRow(ctx, `SELECT name FROM pushmesh.database`).Scan(&known)
		switch {
		case err == nil && known == name:
			return nil
		case err == nil:
			return fmt.Errorf("postgres: this is the mesh's database %q, not %q", known, name)
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		if name != server.Home {
			var used bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pushmesh.log) OR EXISTS (SELECT FROM pushmesh.topic) OR EXISTS (SELECT FROM pushmesh.owner)
				OR EXISTS (SELECT FROM pushmesh.checkpoint) OR EXISTS (SELECT FROM pushmesh.scheduled)`).Scan(&used); err != nil {
				return err
			}
			if used {
				return fmt.Errorf("postgres: database %q is a mesh's own already: it can't become a part of another", name)
			}
			if _, err := tx.Exec(ctx, `UPDATE pushmesh.shard SET held = false`); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO pushmesh.database (name) VALUES ($1)`, name)
		return err
	})
}

// Placements of the shards that are, or were, elsewhere than at home. It is home that is asked.
func (l *Log) Placements(ctx context.Context) ([]Placement, error) {
	return server.Query(ctx, l.server, func(row pgx.CollectableRow) (p Placement, err error) {
		err = row.Scan(&p.Shard, &p.Database, &p.Moving)
		return p, err
	}, `SELECT shard, database, moving FROM pushmesh.placement ORDER BY shard`)
}

// Place changes the map. It is home that is asked.
func (l *Log) Place(ctx context.Context, p Placement) error {
	return l.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `INSERT INTO pushmesh.placement (shard, database, moving) VALUES ($1, $2, $3)
			ON CONFLICT (shard) DO UPDATE SET database = excluded.database, moving = excluded.moving`, p.Shard, p.Database, p.Moving)
		return err
	})
}

// Holds reports whether a shard's data is here.
func (l *Log) Holds(ctx context.Context, shard int) (held bool, err error) {
	err = l.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT held FROM pushmesh.shard WHERE shard = $1`, shard).Scan(&held)
	})
	return held, err
}
