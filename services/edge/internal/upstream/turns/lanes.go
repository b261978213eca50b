package turns

import (
	"context"
	"sync"
)

// Lanes are functions for one goroutine: those of one key run in the order in which they came, and
// keys take turns. It is safe for concurrent use.
type Lanes[K comparable] struct {
	ready chan struct{} // holds one token while there is something to run

	mu   sync.Mutex
	fair Fair[K, func()]
	n    int
}

// NewLanes makes lanes in which nothing waits.
func NewLanes[K comparable]() *Lanes[K] { return &Lanes[K]{ready: make(chan struct{}, 1)} }

// Do has f run after all of its key that was put in before. Callers bound what they put in.
func (l *Lanes[K]) Do(key K, f func()) { l.put(key, f, int(^uint(0)>>1)) }

// TryDo is Do, unless limit functions wait already.
func (l *Lanes[K]) TryDo(limit int, key K, f func()) bool { return l.put(key, f, limit) }

func (l *Lanes[K]) put(key K, f func(), limit int) bool {
	l.mu.Lock()
	if l.n >= limit {
		l.mu.Unlock()
		return false
	}
	l.n++
	l.fair.Add(key, f)
	l.mu.Unlock()
	select {
	case l.ready <- struct{}{}:
	default: // the goroutine will see f with what waits already
	}
	return true
}

// Serve runs what is put in until ctx ends.
func (l *Lanes[K]) Serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ready:
		}
		for l.run() && ctx.Err() == nil {
		}
	}
}

// run runs the next function; false where none waits.
func (l *Lanes[K]) run() bool {
	var f func()
	l.mu.Lock()
	whose := l.fair.Round(1, func(next func()) {
		f = next
		l.n--
	})
	l.mu.Unlock()
	if f == nil {
		return false
	}
	f()
	l.mu.Lock()
	l.fair.Done(whose)
	l.mu.Unlock()
	return true
}
