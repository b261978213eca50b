package backendtest

import (
	"errors"
	"testing"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A database keeps the first mesh that it is given until it is moved, which takes that nobody owns
// a shard.
func testMesh(t *testing.T, db Database) {
	first := meshid.Mesh{Name: "main", ID: "00000000-0000-4000-8000-00000000000a"}
	second := meshid.Mesh{Name: "other", ID: "00000000-0000-4000-8000-00000000000b"}
	b := db(t)
	is := func(wanted, want meshid.Mesh) {
		t.Helper()
		if got, err := b.Mesh(within(t), wanted); err != nil || got != want {
			t.Fatalf("asked with %v: %v, %v, want %v", wanted, got, err, want)
		}
	}
	is(meshid.Mesh{}, meshid.Mesh{})
	is(first, first)
	is(second, first)
	w, err := b.OpenWriter(within(t), owner("a"))
	need(t, err)
	if _, err := w.TakeShards(within(t), []int{1}); err != nil {
		t.Fatal(err)
	}
	if err := b.MoveToMesh(within(t), second); !errors.Is(err, backend.ErrConflict) {
		t.Fatalf("moved while a shard is owned: %v", err)
	}
	need(t, w.Close())
	need(t, b.MoveToMesh(within(t), second))
	need(t, b.Close())
	b = db(t)
	is(first, second)
	need(t, b.Close())
}
