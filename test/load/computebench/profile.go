package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pushmesh/pushmesh/test/load/local"
)

func (b *bench) profileFile(name string) (*os.File, error) {
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(b.profile, name+".cpu.pprof"))
}

// profileWhile writes a profile of some seconds of a process while something is measured, where
// -profile asks for it. done waits for its end.
func (b *bench) profileWhile(ctx context.Context, p *local.Process, name string, seconds int) (done func() error) {
	if b.profile == "" {
		return func() error { return nil }
	}
	saved := make(chan error, 1)
	go func() { saved <- b.save(ctx, p, name, seconds) }()
	return func() error { return <-saved }
}

func (b *bench) save(ctx context.Context, p *local.Process, name string, seconds int) error {
	body, err := p.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
	if err != nil {
		return err
	}
	f, err := b.profileFile(name)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
