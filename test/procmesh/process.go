package procmesh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is one child process of a test. It can be started again after it ended, with the same
// arguments.
type Process struct {
	Name string
	// HTTP address of /readyz; "" where it has none.
	HTTP  string
	addr  string // where clients connect to; known of NATS servers alone
	clock string // the file that says how far its wall clock is ahead; "": it can't be set
	path  string
	args  []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed once the process has ended
	killed []time.Time
	log    logBuffer
}

// logBuffer keeps what a process wrote, for the report of a failed test.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.buf.String()
	if len(s) > n {
		s = "…" + s[len(s)-n:]
	}
	return s
}

func newProcess(t testing.TB, name, httpAddr, path string, args ...string) *Process {
	p := &Process{Name: name, HTTP: httpAddr, path: path, args: args}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("--- %s %s\n%s", p.Name, strings.Join(args, " "), p.log.tail(4000))
		}
	})
	return p
}

// Start starts the process; it must not run.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = exec.Command(p.path, p.args...)
	if p.clock != "" {
		p.cmd.Env = append(os.Environ(), clockVariable+"="+p.clock)
		_ = os.Remove(p.clock + ".is") // of one that ran before
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.cmd, p.done)
	return nil
}

// Signal sends a signal to the process, if it runs.
func (p *Process) Signal(sig os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.Process.Signal(sig) == nil && sig == syscall.SIGSTOP {
		stopped(p.cmd.Process.Pid)
	}
}

// stopped waits until every thread of a process that was sent SIGSTOP stands still, or none is
// left: until then it may answer.
func stopped(pid int) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		moving := false
		for _, path := range stats {
			stat, err := os.ReadFile(path) // #nosec G304 -- of a child
			_, state, found := bytes.Cut(stat, []byte(") "))
			moving = moving || err == nil && found && !bytes.ContainsAny(state[:1], "TZX")
		}
		if !moving {
			return
		}
	}
}

// pid of the process; 0: it was never started.
func (p *Process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGCONT)
	p.Signal(syscall.SIGKILL)
	if p.done == nil {
		return
	}
	<-p.done
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

// Wait waits for the end of the process and returns its exit code.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return -1, fmt.Errorf("%s still runs: %w", p.Name, ctx.Err())
	}
}

// Ready waits until /readyz?verbose answers 200 and its text satisfies ok (nil: any).
func (p *Process) Ready(ctx context.Context, ok func(body string) bool) error {
	var last error
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, body, err := p.Readyz(ctx)
		switch {
		case err != nil:
			last = err
		case status == http.StatusOK && (ok == nil || ok(body)):
			return nil
		default:
			last = fmt.Errorf("status %d: %s", status, body)
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.Name, p.log.tail(2000))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.Name, last)
		case <-tick.C:
		}
	}
}

// Readyz asks /readyz?verbose once.
func (p *Process) Readyz(ctx context.Context) (status int, body string, err error) {
	return p.get(ctx, "/readyz?verbose")
}

func (p *Process) get(ctx context.Context, path string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTP+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Log is the end of what the process wrote.
func (p *Process) Log() string { return p.log.tail(4000) }

// Status asks /readyz?verbose once; 0 where nobody answers.
func (p *Process) Status() (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	status, body, err := p.Readyz(ctx)
	if err != nil {
		return 0, err.Error()
	}
	return status, body
}

// patience is how long anything may take that must happen; a busy machine is no failure.
const patience = 2 * time.Minute

// Await polls until ok, patience at most; what names it in the failure.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		}
	}
}
