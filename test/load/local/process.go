// Package local runs servers as processes of their own on loopback, for measurements: a mesh, its
// peers, the bare loops.
package local

import (
	"context"
	"errors"
	"fmt"
	"github.com/pushmesh/pushmesh/test/load/try"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is one server. It is stopped by its id, and ends with this program whatever happens to
// that.
type Process struct {
	Name string
	Addr string // where clients connect
	HTTP string // of health and profiles; "": none
	cmd  *exec.Cmd
	env  []string // more than this program has
	log  string
	done chan struct{}
}

// Dir is where processes keep their logs and data.
type Dir string

// start starts a program. What it says goes to a file of its own: a pipe would need someone to read
// it.
func (d Dir) start(p *Process, path string, args ...string) (err error) {
	defer try.Catch(&err)
	p.log = filepath.Join(string(d), fmt.Sprintf("%s-%d.log", p.Name, time.Now().UnixNano()))
	log := try.Get(os.Create(p.log))
	defer func() { _ = log.Close() }()
	if p.cmd == nil {
		p.cmd = exec.Command(path, args...)
		p.cmd.Stdout = log
	}
	p.cmd.Stderr = log
	p.cmd.Dir = string(d)
	p.cmd.Env = append(os.Environ(), p.env...)
	// a Ctrl-C is for this program alone
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.done = make(chan struct{})
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return nil
}

// StartTool starts a program to talk with over its standard input and output.
func (d Dir) StartTool(name, path string, args ...string) (_ *Process, _ io.WriteCloser, _ io.Reader, err error) {
	defer try.Catch(&err)
	p := &Process{Name: name, cmd: exec.Command(path, args...)}
	in := try.Get(p.cmd.StdinPipe())
	// A pipe of its own: one of exec's would be closed as soon as the process ends, with the last
	// words in it.
	out, write := try.Get2(os.Pipe())
	p.cmd.Stdout = write
	err = errors.Join(d.start(p, path), write.Close())
	return p, in, out, err
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process is there.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends one to the process, and does not wait.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop ends the process, with SIGKILL if it doesn't within a few seconds, and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(5 * time.Second):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Said is all that the process has said on its standard error so far.
func (p *Process) Said() ([]byte, error) { return os.ReadFile(p.log) }

// Log is the end of what the process said.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// await polls until ok or an end of p, 60 s at most.
func (p *Process) await(ctx context.Context, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.Name, p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %s", p.Name, errors.Join(ctx.Err(), err), p.Log())
		case <-tick.C:
		}
	}
}

// listening waits until connections are taken.
func (p *Process) listening(ctx context.Context) error {
	return p.await(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// ready waits until /readyz says so.
func (p *Process) ready(ctx context.Context) error {
	return p.await(ctx, func(ctx context.Context) error {
		_, err := p.Get(ctx, "/readyz?verbose")
		return err
	})
}

// Get asks the process's HTTP server.
func (p *Process) Get(ctx context.Context, path string) (_ []byte, err error) {
	defer try.Catch(&err)
	req := try.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTP+path, nil))
	resp := try.Get(http.DefaultClient.Do(req))
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s of %s: %s", path, p.Name, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// Figures are the process's metrics, by name and labels.
func (p *Process) Figures(ctx context.Context) (_ map[string]float64, err error) {
	defer try.Catch(&err)
	text := try.Get(p.Get(ctx, "/metrics"))
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				all[name] = v
			}
		}
	}
	return all, nil
}
