package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
)

// heapProfile writes what the edge's heap holds, where -profile asks for it.
func (b *bench) heapProfile(ctx context.Context, p *local.Process, name string) error {
	if b.profile == "" {
		return nil
	}
	return b.save(ctx, p, "/debug/pprof/heap?gc=1", name+".heap.pprof")
}

// cpuProfile measures once more, with the edge's CPU profile on: it costs some, so that no row
// comes from here.
func (b *bench) cpuProfile(ctx context.Context, t *target, name string, window int) error {
	const seconds = 4
	return b.profileWhile(ctx, t.server, name, seconds, func() error {
		_, err := t.Pump(ctx, window, (seconds+1)*time.Second)
		return err
	})
}

// profileWhile profiles the edge while something else is measured.
func (b *bench) profileWhile(ctx context.Context, p *local.Process, name string, seconds int, do func() error) error {
	if b.profile == "" {
		return nil
	}
	saved := make(chan error, 1)
	go func() {
		saved <- b.save(ctx, p, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds), name+".cpu.pprof")
	}()
	return errors.Join(do(), <-saved)
}

func (b *bench) save(ctx context.Context, p *local.Process, path, file string) error {
	body, err := p.Get(ctx, path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.profile, file), body, 0o644)
}
