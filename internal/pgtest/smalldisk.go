package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgserver"
)

// SmallDisk is a file system of its own that holds one database, and nothing of its log.
type SmallDisk struct {
	// URL of the database.
	URL string
	dir string
}

// NewSmallDisk makes an empty database of a server on a file system of so many bytes, in memory;
// both end with the test. It is nil where this process may not mount anything, as in most
// containers.
func NewSmallDisk(t testing.TB, s *pgserver.Server, bytes int64) *SmallDisk {
	t.Helper()
	dir := tempDir(t)
	if err := mount(dir, bytes); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
			return nil
		}
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	space := filepath.Join(dir, "space")
	if err := errors.Join(os.Mkdir(space, 0o700), s.Own(space)); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"CREATE TABLESPACE small LOCATION '" + space + "'", "CREATE DATABASE small TABLESPACE small OWNER " + pgserver.Owner} {
		if err := pgserver.Exec(s.Superuser(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return &SmallDisk{URL: s.Database("small"), dir: dir}
}

// Fill leaves no room on the disk.
func (d *SmallDisk) Fill() (err error) {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		if _, err := f.Write(piece); errors.Is(err, syscall.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Clear makes room again.
func (d *SmallDisk) Clear() error { return os.Remove(d.ballast()) }

func (d *SmallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }
