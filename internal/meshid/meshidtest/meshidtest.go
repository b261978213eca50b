// Package meshidtest provides the mesh that tests use whose stores are not real.
package meshidtest

import (
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Mesh that fake stores belong to.
var Mesh = meshid.Mesh{Name: "test", ID: "00000000-0000-4000-8000-000000000001"}

// Identity of a process that knows that mesh from the start.
func Identity() *meshid.Identity { return meshid.Fixed(Mesh) }

// Owners is a fake store's answer to Owners.
func Owners(ranges []*meshv1.OwnersResponse_Range) *meshv1.OwnersResponse {
	return &meshv1.OwnersResponse{Ranges: ranges, MeshName: Mesh.Name, MeshId: Mesh.ID}
}
