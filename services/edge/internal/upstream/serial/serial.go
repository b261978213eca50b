// Package serial runs functions one after another in one goroutine, which thereby owns whatever
// they touch.
package serial

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Queue of functions for one goroutine. Do never blocks and never refuses: its callers bound what
// they put in (by the subscriptions and connections that may exist) and refuse beyond that
// themselves, with TryDo or a count of their own.
type Queue struct {
	ready chan struct{} // holds one token while there is something to run

	mu      sync.Mutex
	waiting []func()
	spare   []func()
	n       atomic.Int64

	taken []func() // the owner's: those of a RunFor that are left
}

// New makes an empty queue.
func New() *Queue { return &Queue{ready: make(chan struct{}, 1)} }

// Do has f run after everything that was put in before.
func (q *Queue) Do(f func()) {
	q.mu.Lock()
	q.waiting = append(q.waiting, f)
	q.n.Add(1)
	q.mu.Unlock()
	q.wake()
}

func (q *Queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default: // the goroutine will see what waits already
	}
}

// TryDo is Do, unless limit functions wait already.
func (q *Queue) TryDo(limit int, f func()) bool {
	if q.n.Load() >= int64(limit) {
		return false
	}
	q.Do(f)
	return true
}

// Len is the number of functions that wait.
func (q *Queue) Len() int { return int(q.n.Load()) }

// Ready has a token while something waits: the owner receives it, then calls Run.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Run runs what waits now. Only the owning goroutine calls it, and not from a function that it
// runs.
func (q *Queue) Run() { q.RunFor(math.MaxInt64) }

// lookEvery is how many functions RunFor runs between looks at the time.
const lookEvery = 16

// RunFor is Run, but ends with the functions in hand when so much time is over: Ready has a token
// then, and those that are left go first.
func (q *Queue) RunFor(d time.Duration) {
	if len(q.taken) == 0 {
		q.take()
	}
	began, all := time.Now(), q.taken
	for i, f := range all {
		if i%lookEvery == lookEvery-1 && time.Since(began) >= d {
			q.taken = all[i:]
			q.n.Add(int64(-i))
			q.wake()
			return
		}
		f()
		all[i] = nil
	}
	q.taken = nil
	q.n.Add(int64(-len(all)))
	if cap(all) <= 4096 { // a burst's slice is not kept for ever
		q.spare = all[:0]
	} else {
		q.spare = nil
	}
	if q.n.Load() > 0 {
		// put in since these were taken, and whoever was told of it went on with them
		q.wake()
	}
}

// take takes what waits.
func (q *Queue) take() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken, q.waiting = q.waiting, q.spare[:0]
}

// Serve runs what is put in until ctx ends.
func (q *Queue) Serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.ready:
			q.Run()
		}
	}
}
