// Package goproxy writes a module of a repository as the files that a Go module proxy serves
// (https://go.dev/ref/mod#goproxy-protocol).
package goproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// Write writes version of the module at the root of a repository below out, a folder: its files are
// those that git knows there, and those that git does not ignore, without modules within it. at is
// the time of the version. The same files make the same bytes.
func Write(repository, version, out string, at time.Time) error {
	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	m := module.Version{Path: modfile.ModulePath(mod), Version: version}
	if err := errors.Join(fetchable(mod), module.Check(m.Path, m.Version)); err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	files, err := list(repository)
	if err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, m, files); err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, at.UTC()})
	if err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	dir := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("goproxy: %w", err)
	}
	for name, content := range map[string][]byte{version + ".mod": mod, version + ".zip": archive.Bytes(), version + ".info": info, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("goproxy: %w", err)
		}
	}
	return nil
}

// fetchable refuses a go.mod that works in this repository alone.
func fetchable(mod []byte) error {
	f, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		return err
	}
	if len(f.Replace) > 0 {
		return errors.New("go.mod has a replace: who fetches the module would not have it")
	}
	for _, r := range f.Require {
		if r.Mod.Version == "v0.0.0" {
			return fmt.Errorf("go.mod requires %s v0.0.0, which nobody can fetch", r.Mod.Path)
		}
	}
	return nil
}

// file of a repository.
type file struct{ root, name string }

func (f file) Path() string { return f.name }
func (f file) Lstat() (os.FileInfo, error) {
	return os.Lstat(filepath.Join(f.root, filepath.FromSlash(f.name)))
}

func (f file) Open() (io.ReadCloser, error) {
	return os.Open(filepath.Join(f.root, filepath.FromSlash(f.name)))
}

func list(repository string) (files []zip.File, err error) {
	cmd := exec.Command("git", "-C", repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	said, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var names []string
	nested := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(said), "\x00"), "\x00") {
		if info, err := (file{repository, name}).Lstat(); err != nil || !info.Mode().IsRegular() {
			continue // deleted since, or a link
		}
		names = append(names, name)
		if path.Base(name) == "go.mod" && name != "go.mod" {
			nested[path.Dir(name)] = true
		}
	}
	for _, name := range names {
		if !within(name, nested) {
			files = append(files, file{repository, name})
		}
	}
	return files, nil
}

// within reports whether a file is below one of the folders.
func within(name string, folders map[string]bool) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if folders[dir] {
			return true
		}
	}
	return false
}
