package claimrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Variables that the command finds in its environment.
const (
	EnvResource = "PUSHMESH_CLAIM_RESOURCE"
	EnvOwner    = "PUSHMESH_CLAIM_OWNER"
	EnvToken    = "PUSHMESH_CLAIM_TOKEN" //nolint:gosec // a name
)

// forwarded are the signals that go on to the command.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// outputDelay is how long output is waited for that processes hold open which outlive the command.
const outputDelay = time.Second

// Run runs cmd while the hold lasts: it renews, forwards signals, and stops the command's process
// group once the hold is lost, or is about to run out: by SIGTERM, then by SIGKILL killAfter later,
// or a third of the TTL where that is shorter. It returns when nothing of the group is left and the
// claim is released. exit is what the command ended with, 128 and the signal where it was one; lost
// is why it was stopped. err: it could not be started.
func (c *Claim) Run(ctx context.Context, h *Hold, cmd *exec.Cmd, killAfter time.Duration) (exit int, lost, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	cmd.Env = append(cmd.Environ(), EnvResource+"="+c.Resource, EnvOwner+"="+c.Owner, EnvToken+"="+strconv.FormatUint(h.Token, 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = outputDelay
	if err := cmd.Start(); err != nil {
		return 0, nil, errors.Join(err, c.Release(ctx, h))
	}
	killAfter = min(killAfter, h.TTL/3)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// What follows outlives an interrupted ctx: the command may need its time.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	ends := make(chan error, 2)
	token := *h // keep changes h
	var keepers sync.WaitGroup
	keepers.Go(func() { ends <- c.keep(keeping, h, killAfter) })
	keepers.Go(func() { ends <- c.follow(keeping, &token) })
	lost = group(cmd.Process.Pid).supervise(ctx, ended, ends, signals, killAfter)
	stop()
	keepers.Wait()
	if released := c.Release(ctx, h); released != nil && lost == nil {
		err = fmt.Errorf("release the claim (it ends by itself at the end of its TTL): %w", released)
	}
	return exitOf(cmd.ProcessState), lost, err
}

// group is a process group.
type group int

func (g group) kill(s syscall.Signal) {
	_ = syscall.Kill(-int(g), s) // it may be gone
}

// supervise waits for the end of the group's command, and stops it when a reason comes from lost.
func (g group) supervise(ctx context.Context, ended <-chan error, lost <-chan error, signals <-chan os.Signal, killAfter time.Duration) (why error) {
	defer g.kill(syscall.SIGKILL) // what the command left behind
	interrupted := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case <-ended: //nolint:errcheck // the state of the process says it better
			return why
		case err := <-lost:
			if why == nil {
				why = err
				g.kill(syscall.SIGTERM)
				late = time.After(killAfter)
			}
		case <-late:
			g.kill(syscall.SIGKILL)
		case s := <-signals:
			g.kill(s.(syscall.Signal))
		case <-interrupted:
			interrupted = nil
			if context.Cause(ctx) == context.Canceled { //nolint:errorlint // anything else is a signal, which is forwarded
				g.kill(syscall.SIGTERM)
			}
		}
	}
}

func exitOf(p *os.ProcessState) int {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return p.ExitCode()
}
