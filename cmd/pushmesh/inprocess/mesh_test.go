package inprocess

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/services/store"
)

// Whoever reads why a mesh did not start reads which tier it is, not a type of Go.
func TestErrorsNameTheTier(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	one := func(dir string) store.Settings {
		return store.Settings{ID: "s", Listen: taken.Addr().String(), HTTP: "127.0.0.1:0", DB: "sqlite:" + filepath.Join(dir, "db")}
	}
	for want, stores := range map[string][]store.Settings{
		"start store: ": {one(t.TempDir())}, "start store 1: ": {one(t.TempDir()), one(t.TempDir())},
	} {
		m := New(Settings{Stores: stores})
		if err := m.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
}
