package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// profilePath is the file of a profile, absolute: workers run elsewhere. It is "" without -profile.
func (r *Run) profilePath(name string) string {
	if r.Profile == "" {
		return ""
	}
	folder, err := filepath.Abs(r.Profile)
	if err != nil || os.MkdirAll(folder, 0o755) != nil { // #nosec G301 -- to be looked at
		return ""
	}
	return filepath.Join(folder, name+".pprof")
}

// Profiles takes CPU profiles of servers for some seconds, where -profile asks for it. done waits
// for their end.
func (r *Run) Profiles(ctx context.Context, name string, seconds int, ps ...*local.Process) (done func() error) {
	var waits []chan error
	for _, p := range ps {
		if r.Profile == "" || p.Profiles == "" {
			continue
		}
		saved := make(chan error, 1)
		waits = append(waits, saved)
		go func() {
			saved <- r.save(ctx, p, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, seconds)), name+"."+p.Name+".cpu")
		}()
	}
	return func() (err error) {
		for _, saved := range waits {
			err = errors.Join(err, <-saved)
		}
		return err
	}
}

// Heap writes what the heap of a server holds, where -profile asks for it.
func (r *Run) Heap(ctx context.Context, name string, p *local.Process) error {
	if r.Profile == "" || p.Profiles == "" {
		return nil
	}
	return r.save(ctx, p, "/debug/pprof/heap?gc=1", name+"."+p.Name+".heap")
}

func (r *Run) save(ctx context.Context, p *local.Process, path, name string) (err error) {
	defer try.Catch(&err)
	body := try.Get(p.Get(ctx, path))
	return os.WriteFile(r.profilePath(name), body, 0o644) // #nosec G306 -- to be looked at
}

// Profiled writes a CPU profile of what a part does in this process, where -profile asks for it.
func (r *Run) Profiled(name string, part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if r.Profile == "" {
			return part(ctx)
		}
		f, err := os.Create(r.profilePath(name))
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		err = part(ctx)
		pprof.StopCPUProfile()
		return errors.Join(err, f.Close())
	}
}
