package backend

import (
	"context"

	"github.com/pushmesh/pushmesh/internal/meshid"
)

// Meshes is what a database knows of the mesh that it belongs to.
type Meshes interface {
	// Mesh is the database's mesh. Where it has none it is wanted from now on, unless that is zero.
	// Several databases of different meshes are an error.
	Mesh(ctx context.Context, wanted meshid.Mesh) (meshid.Mesh, error)
	// MoveToMesh makes the database one of mesh m, whatever it was before. No shard may be owned
	// meanwhile (ErrConflict).
	MoveToMesh(ctx context.Context, m meshid.Mesh) error
}
