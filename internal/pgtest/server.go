package pgtest

import (
	"os"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgserver"
)

// tempDir is a pgserver.TempDir that ends with the test.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := pgserver.TempDir(os.Getenv(Folder))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// New starts a server with settings (name=value) for one test, which may do to it what it likes; it
// ends with the test.
func New(t testing.TB, settings ...string) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(tempDir(t), 0, settings...)
	if err != nil {
		t.Fatalf("no Postgres for the test: install Debian's postgresql: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// NewStandby starts a standby of a server under a name; it ends with the test.
func NewStandby(t testing.TB, of *pgserver.Server, name string) *pgserver.Server {
	t.Helper()
	s, err := pgserver.StartStandby(of, tempDir(t), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}
