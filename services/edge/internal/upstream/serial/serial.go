// Package serial runs functions one after another in one goroutine, which thereby owns whatever
// they touch.
package serial

import (
	"context"
	"sync"
	"sync/atomic"
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
}

// New makes an empty queue.
func New() *Queue { return &Queue{ready: make(chan struct{}, 1)} }

// Do has f run after everything that was put in before.
func (q *Queue) Do(f func()) {
	q.mu.Lock()
	q.waiting = append(q.waiting, f)
	q.n.Store(int64(len(q.waiting)))
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default: // the goroutine will see f with what waits already
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

// Run runs what waits now. Only the owning goroutine calls it.
func (q *Queue) Run() {
	q.mu.Lock()
	fs := q.waiting
	q.waiting = q.spare[:0]
	q.n.Store(0)
	q.mu.Unlock()
	for i, f := range fs {
		f()
		fs[i] = nil
	}
	if cap(fs) <= 4096 { // a burst's slice is not kept for ever
		q.spare = fs
	} else {
		q.spare = nil
	}
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
