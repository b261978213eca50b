package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Mesh is the database's mesh; wanted from now on, where it has none and wanted is one.
func (b *Backend) Mesh(ctx context.Context, wanted meshid.Mesh) (m meshid.Mesh, err error) {
	err = inTx(ctx, b.write, func(tx *sql.Tx) error {
		if wanted != (meshid.Mesh{}) {
			if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO mesh (id, name, mesh_id) VALUES (1, ?, ?)", wanted.Name, wanted.ID); err != nil {
				return fmt.Errorf("sqlite: write the mesh: %w", err)
			}
		}
		err := tx.QueryRowContext(ctx, "SELECT name, mesh_id FROM mesh").Scan(&m.Name, &m.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("sqlite: read the mesh: %w", err)
		}
		return nil
	})
	return m, err
}

// MoveToMesh makes the database one of mesh m.
func (b *Backend) MoveToMesh(ctx context.Context, m meshid.Mesh) error {
	if b.owners.any() {
		return fmt.Errorf("sqlite: %w: shards are owned", backend.ErrConflict)
	}
	if _, err := b.write.ExecContext(ctx, "INSERT OR REPLACE INTO mesh (id, name, mesh_id) VALUES (1, ?, ?)", m.Name, m.ID); err != nil {
		return fmt.Errorf("sqlite: write the mesh: %w", err)
	}
	return nil
}
