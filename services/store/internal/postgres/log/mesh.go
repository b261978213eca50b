package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Mesh is the database's mesh; wanted from now on, where it has none and wanted is one.
func (l *Log) Mesh(ctx context.Context, wanted meshid.Mesh) (m meshid.Mesh, err error) {
	err = l.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if wanted != (meshid.Mesh{}) {
			if _, err := tx.Exec(ctx, `INSERT INTO pushmesh.mesh (name, mesh_id) VALUES ($1, $2::text::uuid) ON CONFLICT DO NOTHING`, wanted.Name, wanted.ID); err != nil {
				return err
			}
		}
		err := tx.QueryRow(ctx, `SELECT name, mesh_id::text FROM pushmesh.mesh`).Scan(&m.Name, &m.ID)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return m, err
}

// MoveToMesh makes the database one of mesh m.
func (l *Log) MoveToMesh(ctx context.Context, m meshid.Mesh) error {
	return l.server.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := unowned(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO pushmesh.mesh (name, mesh_id) VALUES ($1, $2::text::uuid)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, mesh_id = excluded.mesh_id`, m.Name, m.ID)
		return err
	})
}

// unowned keeps every shard from being claimed until tx ends; ErrConflict where one is owned.
func unowned(ctx context.Context, tx pgx.Tx) error {
	var free bool
	if err := tx.QueryRow(ctx, `SELECT bool_and(pg_try_advisory_xact_lock($1, shard)) FROM pushmesh.shard`, int32(LockClass)).Scan(&free); err != nil {
		return err
	}
	if !free {
		return fmt.Errorf("%w: a shard is owned by a store", backend.ErrConflict)
	}
	return nil
}
