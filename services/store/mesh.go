package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/meshid"
)

// learnMesh reads which mesh the database belongs to, or makes it one of a new mesh: where it
// belongs to none so far, and where an operator says so.
func (c *core) learnMesh(ctx context.Context) error {
	fresh := meshid.Mesh{Name: cmp.Or(c.settings.Mesh, meshid.DefaultName), ID: meshid.NewID()}
	if c.settings.NewMesh {
		if err := insist(ctx, func() error { return c.backend.MoveToMesh(ctx, fresh) }); err != nil {
			return fmt.Errorf("--new-mesh: %w", err)
		}
	}
	var mesh meshid.Mesh
	if err := insist(ctx, func() (err error) {
		mesh, err = c.backend.Mesh(ctx, fresh)
		return err
	}); err != nil {
		return err
	}
	if c.settings.Mesh != "" && c.settings.Mesh != mesh.Name {
		return fmt.Errorf("the database belongs to %s, and this store was started with --mesh %s: leave --mesh out, name another database, or rename the mesh with --new-mesh while no store runs",
			mesh, c.settings.Mesh)
	}
	if err := c.mesh.Learn(mesh); err != nil {
		return fmt.Errorf("the database: %w", err)
	}
	c.tel.Log.Info("read the mesh from the database", "mesh", mesh.Name, "id", mesh.ID, "new", mesh == fresh)
	return nil
}

// checkMesh names other meshes that have this one's name, and another store that has this one's id.
func (c *core) checkMesh() error {
	if n := c.neighbours.Load(); n != nil {
		return errors.Join(n.Check(), c.owners.CheckID())
	}
	return errors.New("not known yet")
}
