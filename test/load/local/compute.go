package local

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/process"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// StartCompute starts a compute node, by a program that starts it with another priority (nice -n
// 19), if any, and waits until it is ready.
func (d Dir) StartCompute(ctx context.Context, prog Programs, id string, by []string, more ...string) (_ *Process, err error) {
	defer try.Catch(&err)
	addr := try.Get(ports.Addr())
	httpAddr, profiles := try.Get(ports.Addr()), try.Get(ports.Addr())
	path, args := filepath.Join(prog.Bin, "compute"), append([]string{"--id", id, "--listen", addr, "--http", httpAddr, "--pprof-addr", profiles, "--log-level", "warn"}, more...)
	if len(by) > 0 {
		// A priority belongs to a thread: it has to be there before the process makes others.
		args = slices.Concat(by[1:], []string{path}, args)
		path = try.Get(exec.LookPath(by[0]))
	}
	p := d.new(id, addr, path, args...)
	p.HTTP, p.Profiles, p.Env = httpAddr, profiles, append(p.Env, process.PlainTiers)
	return started(ctx, p)
}
