package local

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/pushmesh/pushmesh/internal/ports"
)

// StartCompute starts a compute node, by a program that starts it with another priority (nice -n
// 19), if any, and waits until it is ready.
func (d Dir) StartCompute(ctx context.Context, prog Programs, id string, by []string, more ...string) (*Process, error) {
	addr, err := ports.Addr()
	if err != nil {
		return nil, err
	}
	httpAddr, err := ports.Addr()
	if err != nil {
		return nil, err
	}
	path, args := filepath.Join(prog.Bin, "compute"), append([]string{"--id", id, "--listen", addr, "--http", httpAddr, "--log-level", "warn"}, more...)
	if len(by) > 0 {
		// A priority belongs to a thread: it has to be there before the process makes others.
		args = slices.Concat(by[1:], []string{path}, args)
		if path, err = exec.LookPath(by[0]); err != nil {
			return nil, err
		}
	}
	p := &Process{Name: id, Addr: addr, HTTP: httpAddr}
	if err := d.start(p, path, args...); err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}
