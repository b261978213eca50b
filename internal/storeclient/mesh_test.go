package storeclient

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
)

var other = meshid.Mesh{Name: "other", ID: "00000000-0000-4000-8000-000000000002"}

// says waits for a refusal that names each text.
func says(t *testing.T, c *Client, texts ...string) {
	t.Helper()
	wait(t, c, "the refusal", func() bool {
		err := c.CheckMesh()
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				return false
			}
		}
		return true
	})
}

// An owner's address becomes another mesh's: nothing that the new store says is believed, until it
// is of the mesh again.
func TestAStoreOfAnotherMeshIsNotBelieved(t *testing.T) {
	c, a, b := pair(t)
	b.set(func(f *fake) { f.mesh = other })
	b.own(0, last)
	says(t, c, b.addr, other.String(), meshidtest.Mesh.String())
	if !ownedBy(c, 0, a.addr)() {
		t.Error("the store of another mesh has the other's shards")
	}
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), other.String()) {
		t.Errorf("health: %v", err)
	}
	b.set(func(f *fake) { f.mesh = meshid.Mesh{} })
	b.own(512, last)
	wait(t, c, "it is believed again", func() bool { return c.CheckMesh() == nil && ownedBy(c, last, b.addr)() })
}

// Where the stores that it was told of belong to several meshes, a process joins none of them.
func TestSeedsOfTwoMeshes(t *testing.T) {
	a, b := newFake(t).own(0, last), newFake(t).own(0, last)
	b.set(func(f *fake) { f.mesh = other })
	c := clientThatWaits(t, patient, a.addr, b.addr)
	says(t, c, other.String(), meshidtest.Mesh.String(), "name stores of one mesh only")
	if m, known := c.cfg.Mesh.Mesh(); known {
		t.Errorf("it joined %v", m)
	}
	if _, _, err := c.Owner(0); err == nil {
		t.Error("it has an owner")
	}
}

// A process that was given the name of a mesh takes no other, and a store that names none is older
// than that.
func TestAWantedMesh(t *testing.T) {
	a := newFake(t).own(0, last)
	c := New(Config{Seeds: []string{a.addr}, Mesh: meshid.New("wanted")})
	c.waits = patient
	begin(t, c)
	says(t, c, meshidtest.Mesh.String(), "--mesh wanted")
	a.set(func(f *fake) { f.mesh = meshid.Mesh{Name: "wanted", ID: "x"} })
	says(t, c, "must be a UUID")
	a.set(func(f *fake) { f.mesh = meshid.Mesh{Name: "wanted", ID: other.ID} })
	wait(t, c, "the mesh that was wanted", func() bool { return c.CheckMesh() == nil && ownedBy(c, 0, a.addr)() })
}
