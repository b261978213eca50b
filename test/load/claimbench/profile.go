package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/pushmesh/pushmesh/test/load/local"
)

// profiles takes CPU profiles of every tier during a part, where -profile asks for it. The function
// waits for their end.
func (b *bench) profiles(ctx context.Context, part string) (func() error, error) {
	if b.profile == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil { // #nosec G301 -- to be looked at
		return nil, err
	}
	tiers := append([]*local.Process{b.mesh.Router, b.mesh.Store}, b.mesh.Edges...)
	errs := make([]error, len(tiers))
	var running sync.WaitGroup
	for i, p := range tiers {
		running.Go(func() {
			body, err := p.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(b.span.Seconds())-1)))
			if err == nil {
				// #nosec G306 -- to be looked at
				err = os.WriteFile(filepath.Join(b.profile, part+"-"+p.Name+".pprof"), body, 0o644)
			}
			errs[i] = err
		})
	}
	return func() error {
		running.Wait()
		return errors.Join(errs...)
	}, nil
}
