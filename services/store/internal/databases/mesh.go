package databases

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
)

// Mesh is home's. The others are given it where they have none; one of another mesh is an error.
func (s *Set) Mesh(ctx context.Context, wanted meshid.Mesh) (meshid.Mesh, error) {
	m, err := s.all[0].Mesh(ctx, wanted)
	if err != nil {
		return m, err
	}
	return m, s.each(func(_ int, db *postgres.DB) error {
		theirs, err := db.Mesh(ctx, m)
		if err == nil && theirs != m {
			err = fmt.Errorf("it belongs to %s, and home to %s: check the URLs of --db and --shard-db", theirs, m)
		}
		return err
	})
}

// MoveToMesh moves all.
func (s *Set) MoveToMesh(ctx context.Context, m meshid.Mesh) error {
	return s.each(func(_ int, db *postgres.DB) error { return db.MoveToMesh(ctx, m) })
}
