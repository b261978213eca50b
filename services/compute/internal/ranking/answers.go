package ranking

import (
	"context"
	"sync"

	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/intake"
)

const (
	// maxAnswers of one message.
	maxAnswers = 256
	// maxUnsent answers of a stream, beyond which it is not read from.
	maxUnsent = 4096
)

// answer is how one job of a stream ended.
type answer struct {
	ref   uint64
	work  *work
	times cpupool.Times
	err   error
}

// answers are what a stream is owed. It is safe for concurrent use.
type answers struct {
	wake chan struct{} // 1: there is something to send
	free chan struct{} // 1: something was taken
	call *intake.Call  // pays for jobs under way; nil: nobody does

	mu       sync.Mutex
	ready    []answer
	owed     map[uint64]owed // jobs without an answer
	bytes    int             // of them
	finished bool
}

// owed is a job without an answer: what ends its context, and the bytes that it takes.
type owed struct {
	cancel context.CancelFunc
	bytes  int
}

func newAnswers() *answers {
	return &answers{wake: make(chan struct{}, 1), free: make(chan struct{}, 1), owed: map[uint64]owed{}}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// expect notes a job of so many bytes, whose context cancel ends. A ref that is under way already
// is counted once.
func (a *answers) expect(ref uint64, bytes int, cancel context.CancelFunc) {
	a.mu.Lock()
	a.bytes += bytes - a.owed[ref].bytes
	a.owed[ref] = owed{cancel, bytes}
	a.call.Keep(a.bytes)
	a.mu.Unlock()
}

// cancel ends the context of a job that nobody waits for.
func (a *answers) cancel(ref uint64) {
	a.mu.Lock()
	cancel := a.owed[ref].cancel
	a.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (a *answers) add(one answer) {
	a.mu.Lock()
	cancel := a.owed[one.ref].cancel
	a.bytes -= a.owed[one.ref].bytes
	delete(a.owed, one.ref)
	a.call.Keep(a.bytes)
	a.ready = append(a.ready, one)
	a.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	signal(a.wake)
}

// finish says that no more jobs come.
func (a *answers) finish() {
	a.mu.Lock()
	a.finished = true
	a.mu.Unlock()
	signal(a.wake)
}

// room waits while too many answers are unsent.
func (a *answers) room(ctx context.Context) error {
	for {
		a.mu.Lock()
		n := len(a.ready)
		a.mu.Unlock()
		if n < maxUnsent {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.free:
		}
	}
}

// take waits for answers and moves some into dst; none: all jobs are answered, and no more come.
func (a *answers) take(ctx context.Context, dst []answer) ([]answer, error) {
	for {
		a.mu.Lock()
		n := min(len(a.ready), maxAnswers)
		dst = append(dst, a.ready[:n]...)
		rest := copy(a.ready, a.ready[n:])
		clear(a.ready[rest:])
		a.ready = a.ready[:rest]
		over := a.finished && len(a.owed) == 0
		a.mu.Unlock()
		if n > 0 {
			signal(a.free)
		}
		if n > 0 || over {
			return dst, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.wake:
		}
	}
}
