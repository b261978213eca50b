package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// StallEdge is an edge that ranks on its own loops, when it is told to.
type StallEdge struct {
	*Process
	in  io.WriteCloser
	out *bufio.Reader
}

// StartStallEdge starts edgestall, and waits until it serves.
func (m *Mesh) StartStallEdge(path string) (*StallEdge, error) {
	p, in, out, err := m.dir.StartTool("edgestall", path, "-id", "edgestall", "-nats", m.nats, "-stores", m.Store.Addr)
	if err != nil {
		return nil, err
	}
	e := &StallEdge{Process: p, in: in, out: bufio.NewReader(out)}
	line, err := e.read()
	addr, ok := strings.CutPrefix(line, "ready ")
	if e.Addr = addr; !ok {
		p.Kill()
		return nil, errors.Join(fmt.Errorf("edgestall said %q: %s", line, p.Log()), err)
	}
	return e, nil
}

func (e *StallEdge) read() (string, error) {
	line, err := e.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Order has it carry out a line, and gives the answer.
func (e *StallEdge) Order(ctx context.Context, line string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(e.in, line); err != nil {
		return "", err
	}
	return e.read()
}

// End has it end, and waits for that.
func (e *StallEdge) End() error {
	err := e.in.Close()
	<-e.Done()
	return err
}
