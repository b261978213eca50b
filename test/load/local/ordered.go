package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Ordered is a process that carries out lines, and answers each with one.
type Ordered struct {
	*Process
	in  io.WriteCloser
	out *bufio.Reader
}

// StartOrdered starts a program, and waits until it says "ready"; more is what it says behind that.
func (d Dir) StartOrdered(name, path string, args ...string) (p *Ordered, more string, err error) {
	process, in, out, err := d.StartTool(name, path, args...)
	if err != nil {
		return nil, "", err
	}
	p = &Ordered{Process: process, in: in, out: bufio.NewReader(out)}
	line, err := p.read()
	more, ok := strings.CutPrefix(line, "ready")
	if !ok {
		p.Kill()
		return nil, "", errors.Join(fmt.Errorf("%s said %q: %s", name, line, p.Log()), err)
	}
	return p, strings.TrimSpace(more), nil
}

// StartStallEdge starts edgestall in the mesh, and waits until it serves.
func (m *Mesh) StartStallEdge(path string) (*Ordered, error) {
	p, addr, err := m.dir.StartOrdered("edgestall", path, "-id", "edgestall", "-nats", m.nats, "-stores", m.Store.Addr)
	if err == nil {
		p.Addr = addr
	}
	return p, err
}

func (p *Ordered) read() (string, error) {
	line, err := p.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Order has it carry out a line, and gives the answer.
func (p *Ordered) Order(ctx context.Context, line string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", err
	}
	answer, err := p.read()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", p.Name, err, p.Log())
	}
	return answer, err
}

// End has it end, and waits for that.
func (p *Ordered) End() error {
	err := p.in.Close()
	<-p.Done()
	return err
}
