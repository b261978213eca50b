// Package process runs the servers of a mesh as child processes on loopback: for `pushmesh mesh`,
// for tests that kill processes, and for benchmarks. It does not know of testing.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Process is one child. It owns the operating system's process and the goroutine that waits for its
// end, and can be started again, with the same arguments, after it ended. Its fields are set before
// Start; its methods are safe for concurrent use.
type Process struct {
	Name string
	Addr string // where it serves
	HTTP string // of /readyz and /metrics; "": ready when Addr takes connections
	// Profiles is where it serves /debug/pprof/; "": nowhere.
	Profiles string
	Path     string
	Args     []string
	Env      []string // besides this program's
	Log      string   // the file that its output is appended to
	Tied     bool     // it is killed when this program ends, however that ends (on Linux)

	// Stdin and Stdout are its; nil: nothing to read, and Log.
	Stdin, Stdout *os.File

	program string // of Options.Binary

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed once cmd has ended
	end    error
	killed []time.Time
}

// Start starts the process; it must not run.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.Name, err)
	}
	cmd := exec.Command(p.Path, p.Args...) // #nosec G204 -- whoever starts it decides
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if p.Stdin != nil {
		cmd.Stdin = p.Stdin
	}
	if p.Stdout != nil {
		cmd.Stdout = p.Stdout
	}
	// A group of its own: a Ctrl-C in the terminal is for this program, which stops its children in
	// order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.Tied {
		tie(cmd.SysProcAttr)
	}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go p.reap(cmd, p.done)
	return nil
}

func (p *Process) reap(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	p.end = err
	p.mu.Unlock()
	close(done)
}

// Done is closed when the process that runs now has ended; nil before the first Start.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Running reports whether the process was started and has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Done():
		return false
	default:
		return p.PID() != 0
	}
}

// PID of the process; 0: it was never started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// End is how the process ended: nil with exit code 0.
func (p *Process) End() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// Wait waits for the end of the process and returns its exit code.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return -1, fmt.Errorf("%s still runs: %w", p.Name, ctx.Err())
	}
}

// Stop asks the process to end, and kills it after grace: that is an error, as is an exit code
// other than 0. One that has ended before is none: its end was told when it happened.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	select {
	case <-p.Done():
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("%s did not stop within %s and was killed; see %s", p.Name, grace, p.Log)
	}
	if err := p.End(); err != nil {
		return fmt.Errorf("%s: %w; see %s", p.Name, err, p.Log)
	}
	return nil
}

// Kill ends the process with SIGKILL, if it runs, and waits for its end.
func (p *Process) Kill() {
	if p.PID() == 0 {
		return
	}
	_ = p.signal(syscall.SIGKILL) // it may just have ended
	<-p.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = append(p.killed, time.Now())
}

// Killed is when Kill ended the process, each time.
func (p *Process) Killed() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.killed)
}

// Signal sends a signal to the process, if it runs. After SIGSTOP it returns when the process
// stands still: until then it may answer.
func (p *Process) Signal(sig os.Signal) {
	p.mu.Lock()
	cmd := p.cmd // which gets the signal and is waited for, though another may be started meanwhile
	p.mu.Unlock()
	if cmd != nil && cmd.Process.Signal(sig) == nil && sig == syscall.SIGSTOP {
		awaitStopped(cmd.Process.Pid)
	}
}

func (p *Process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(sig)
}

// Tail is the end of the log, n bytes at most.
func (p *Process) Tail(n int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	if len(text) > n {
		return "…" + string(text[len(text)-n:])
	}
	return string(text)
}
