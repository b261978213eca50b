package local

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/pushmesh/pushmesh/internal/ports"
)

// StartCompute starts a compute node whose threads have the priority nice (0, as usual, to 19), and waits until it is ready.
func (d Dir) StartCompute(ctx context.Context, prog Programs, id string, nice int, more ...string) (*Process, error) {
	addr, err := ports.Addr()
	if err != nil {
		return nil, err
	}
	httpAddr, err := ports.Addr()
	if err != nil {
		return nil, err
	}
	path, args := filepath.Join(prog.Bin, "compute"), append([]string{"--id", id, "--listen", addr, "--http", httpAddr, "--log-level", "warn"}, more...)
	if nice != 0 {
		// A priority belongs to a thread: it has to be there before the process makes others.
		args = append([]string{"-n", strconv.Itoa(nice), path}, args...)
		if path, err = exec.LookPath("nice"); err != nil {
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
