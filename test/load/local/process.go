// Package local runs servers as processes of their own on loopback, for measurements: a mesh, its
// peers, the bare loops.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/internal/process"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Process is one server, which ends with this program whatever happens to that.
type Process = process.Process

// Dir is where processes keep their logs and data.
type Dir string

// new makes a process, whose log is a file of its own: a pipe would need someone to read it.
func (d Dir) new(name, addr, path string, args ...string) *Process {
	log := fmt.Sprintf("%s-%d.log", name, time.Now().UnixNano())
	return &Process{Name: name, Addr: addr, Path: path, Args: args, Log: filepath.Join(string(d), log), Tied: true}
}

// StartTool starts a program to talk with over its standard input and output.
func (d Dir) StartTool(name, path string, args ...string) (_ *Process, _ io.WriteCloser, _ io.Reader, err error) {
	defer try.Catch(&err)
	p := d.new(name, "", path, args...)
	read, in := try.Get2(os.Pipe())
	out, write := try.Get2(os.Pipe())
	p.Stdin, p.Stdout = read, write
	err = errors.Join(p.Start(), read.Close(), write.Close())
	return p, in, out, err
}

// readyWithin bounds how long a process may take until it is ready.
const readyWithin = time.Minute

// started starts a process and waits until it is ready.
func started(ctx context.Context, p *Process) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := errors.Join(p.Start(), p.Ready(ctx)); err != nil {
		Stop(p)
		return nil, err
	}
	return p, nil
}

// Stop ends processes at once, with SIGKILL those that do not within a few seconds, and waits for
// their end. What they say of it is in their logs.
func Stop(ps ...*Process) {
	done := make(chan struct{}, len(ps))
	for _, p := range ps {
		go func() { _ = p.Stop(5 * time.Second); done <- struct{}{} }()
	}
	for range ps {
		<-done
	}
}
