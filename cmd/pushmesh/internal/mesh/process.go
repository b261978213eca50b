package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/readiness"
)

// process is one child: it owns the operating system's process, its log file and the goroutine that
// waits for its end.
type process struct {
	name string
	addr string // where it serves
	http string // of /readyz; "": ready when addr takes connections
	path string
	args []string
	log  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed once cmd has ended
	end  error
}

// start starts the process, with its output appended to the log file.
func (p *process) start(dir string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = filepath.Join(dir, p.name+".log")
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.name, err)
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: a Ctrl-C in the terminal is for the launcher, which stops its children in
	// order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if err := errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go p.reap(cmd, p.done)
	return nil
}

func (p *process) reap(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	p.end = err
	p.mu.Unlock()
	close(done)
}

// ended is closed when the process that runs now has ended.
func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// stop asks the process to end, and kills it after grace: that is an error, as is an exit code
// other than 0.
func (p *process) stop(grace time.Duration) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	select {
	case <-done:
		return nil // its end was told when it happened
	default:
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-done:
	case <-time.After(grace):
		_ = cmd.Process.Kill() // it may just have ended
		<-done
		return fmt.Errorf("%s did not stop within %s and was killed; see %s", p.name, grace, p.log)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return fmt.Errorf("%s: %w; see %s", p.name, p.end, p.log)
	}
	return nil
}

// ready waits until the process says that it is and misses nothing; its early end is an error.
func (p *process) ready(ctx context.Context) error {
	var err error
	if p.http != "" {
		err = readiness.Await(ctx, p.http, p.ended())
	} else {
		err = p.listens(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; see %s", p.name, err, p.log)
	}
	return nil
}

// listens waits until the process takes connections.
func (p *process) listens(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended():
			return errors.New("ended before it was ready")
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
