package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pushmesh/pushmesh/test/load/local"
)

// heapProfile writes what the edge's heap holds, where -profile asks for it.
func (b *bench) heapProfile(ctx context.Context, p *local.Process, name string) error {
	if b.profile == "" {
		return nil
	}
	return b.save(ctx, p, "/debug/pprof/heap?gc=1", name+".heap.pprof")
}

// cpuProfile measures once more, with the edge's CPU profile on: it costs some, so that no row comes from here.
func (b *bench) cpuProfile(ctx context.Context, t *target, name string, window, conns int) error {
	if b.profile == "" {
		return nil
	}
	const seconds = 4
	saved := make(chan error, 1)
	go func() {
		saved <- b.save(ctx, t.server, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds), name+".cpu.pprof")
	}()
	_, err := t.pump(ctx, window, conns, (seconds+1)*1e9)
	return errors.Join(err, <-saved)
}

func (b *bench) save(ctx context.Context, p *local.Process, path, file string) error {
	body, err := p.Get(ctx, path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil { //nolint:gosec // profiles are for everyone
		return err
	}
	return os.WriteFile(filepath.Join(b.profile, file), body, 0o644) //nolint:gosec // likewise
}
