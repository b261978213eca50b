package outbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// line is what the sender has to do, in order: every batch of every queue, as they were begun. So
// of two messages that were put one after the other, into whichever queues, the first leaves first,
// unless the second joined a batch that was begun before the first one's: what may not happen where
// a topic changes between queues, which seal prevents.
type line struct {
	wake chan struct{} // 1: there is something to do

	corks atomic.Int64 // who is about to put more
	quiet atomic.Int64 // things put since the sender was woken last, while corked

	mu      sync.Mutex
	batches []*Queue // for each batch the queue that has it
	head    int
	asking  []*Queue // edges that have to hear something, batch or not
	asked   bool     // asking has grown
	leaving bool
}

func (l *line) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// put says that something was put, in a batch that it began or not.
func (l *line) put(begun bool) {
	if l.corks.Load() == 0 {
		if begun { // who finds an open batch need not wake anybody: it is in the line
			l.signal()
		}
		return
	}
	if l.quiet.Add(1) >= corkedMost {
		l.quiet.Store(0)
		l.signal()
	}
}

func (l *line) cork() { l.corks.Add(1) }

// uncork says how many things were put since the sender was woken last.
func (l *line) uncork() (put int64) {
	l.corks.Add(-1)
	return l.quiet.Swap(0)
}

// begun adds the batch that q has begun. The caller holds q.mu, so that batches of one queue stand
// in their order.
func (l *line) begun(q *Queue) {
	l.mu.Lock()
	l.batches = append(l.batches, q)
	l.mu.Unlock()
}

// next takes the queue whose oldest batch is to be sent; nil where none waits. asked says that
// edges have to hear something, and is not said again.
func (l *line) next() (q *Queue, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked, l.asked = l.asked, false
	return l.shift(), asked
}

// take is next for one who does not answer edges.
func (l *line) take() *Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shift()
}

func (l *line) shift() (q *Queue) {
	if l.head == len(l.batches) {
		l.batches, l.head = l.batches[:0], 0
		return nil
	}
	q = l.batches[l.head]
	l.batches[l.head] = nil
	if l.head++; l.head >= 1024 && l.head*2 >= len(l.batches) {
		n := copy(l.batches, l.batches[l.head:])
		clear(l.batches[n:])
		l.batches, l.head = l.batches[:n], 0
	}
	return q
}

// ask has the sender look after an edge that may get no batch.
func (l *line) ask(q *Queue) {
	l.mu.Lock()
	l.asking, l.asked = append(l.asking, q), true
	l.mu.Unlock()
	l.signal()
}

// again has the sender look after those that asked.
func (l *line) again() {
	l.mu.Lock()
	l.asked = true
	l.mu.Unlock()
	l.signal()
}

// answers calls due for every edge that asked, and keeps those for which it says how long to wait.
// It returns the shortest wait; 0: none waits.
func (l *line) answers(due func(*Queue) time.Duration) (wait time.Duration) {
	l.mu.Lock()
	all := l.asking
	l.asking = nil
	l.mu.Unlock()
	kept := all[:0]
	for _, q := range all {
		w := due(q)
		if w <= 0 {
			continue
		}
		kept = append(kept, q)
		if wait == 0 || w < wait {
			wait = w
		}
	}
	clear(all[len(kept):])
	l.mu.Lock()
	l.asking = append(kept, l.asking...)
	l.mu.Unlock()
	return wait
}

// waits says that there are batches to be sent.
func (l *line) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head < len(l.batches)
}

func (l *line) leave() {
	l.mu.Lock()
	l.leaving = true
	l.mu.Unlock()
	l.signal()
}

func (l *line) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving && l.head == len(l.batches)
}

// sleep waits for a signal, or for so long where wait is above 0; false once ctx ended.
func (l *line) sleep(ctx context.Context, wait time.Duration) bool {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-l.wake:
	case <-due:
	}
	return true
}
