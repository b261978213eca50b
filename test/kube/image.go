package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
)

// image is a container image that is made here, since there is no registry to get one from.
type image struct {
	name string
	// base is the tar of a root file system below it; empty: none.
	base  string
	files map[string][]byte
	// modes of files other than 0755
	modes   map[string]int64
	entry   []string
	env     []string
	numeric string // user
}

// write makes an archive of it as docker save does, which containerd imports.
func (i image) write(path string) (err error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for name, content := range i.files {
		mode := int64(0o755)
		if m, ok := i.modes[name]; ok {
			mode = m
		}
		if err := add(w, name, mode, content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := out.Close(); err == nil {
			err = e
		}
	}()
	w = tar.NewWriter(out)
	var names, sums []string
	if i.base != "" {
		sum, err := copyFile(w, "base.tar", i.base)
		if err != nil {
			return err
		}
		names, sums = append(names, "base.tar"), append(sums, sum)
	}
	sum := sha256.Sum256(layer.Bytes())
	names, sums = append(names, "layer.tar"), append(sums, "sha256:"+hex.EncodeToString(sum[:]))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.entry, "Env": i.env, "User": i.numeric, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": sums},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{i.name}, "Layers": names}})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{"layer.tar", layer.Bytes()}, {"config.json", config}, {"manifest.json", manifest}} {
		if err := add(w, f.name, 0o644, f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// copyFile adds a file, and returns its digest.
func copyFile(w *tar.Writer, name, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}); err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(w, sum), f)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
}

// inTar is one file of a tar.
func inTar(path, name string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, path, err)
		}
		if h.Name == name || h.Name == "./"+name {
			return io.ReadAll(r)
		}
	}
}
