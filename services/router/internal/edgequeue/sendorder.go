package edgequeue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// sendOrder lists what the sender has to do, in order: every batch of every queue, in the order in
// which they were begun. So of two messages that were queued one after the other, into whichever
// queues, the first is sent first, unless the second joined a batch that was begun before the first
// one's. That may not happen where a topic changes between queues, and closeBatch prevents it
// there.
type sendOrder struct {
	wake chan struct{} // 1: there is something to do

	corked      atomic.Int64 // callers that are about to queue more
	unsignalled atomic.Int64 // things queued while corked, since the sender was woken last

	mu         sync.Mutex
	batches    []*Queue // for each batch the queue that has it
	head       int
	answering  []*Queue // edges that need an answer, with a batch or without
	newAnswers bool     // answering has grown
	leaving    bool
}

func (l *sendOrder) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// notePut notes that something was queued, and whether it began a batch.
func (l *sendOrder) notePut(begun bool) {
	if l.corked.Load() == 0 {
		if begun { // an open batch is in the order already, and the sender woken
			l.signal()
		}
		return
	}
	if l.unsignalled.Add(1) >= maxCorked {
		l.unsignalled.Store(0)
		l.signal()
	}
}

func (l *sendOrder) cork() { l.corked.Add(1) }

// uncork returns how many things were queued since the sender was woken last.
func (l *sendOrder) uncork() (put int64) {
	l.corked.Add(-1)
	return l.unsignalled.Swap(0)
}

// addBatch appends the batch that q has begun. The caller holds q.mu, so that the batches of one
// queue keep their order.
func (l *sendOrder) addBatch(q *Queue) {
	l.mu.Lock()
	l.batches = append(l.batches, q)
	l.mu.Unlock()
}

// next returns the queue whose oldest batch is to be sent; nil where no batch waits. answers
// reports whether edges were added that need an answer, once.
func (l *sendOrder) next() (q *Queue, answers bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers, l.newAnswers = l.newAnswers, false
	return l.shift(), answers
}

// nextBatch is like next, for a caller that sends no answers.
func (l *sendOrder) nextBatch() *Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shift()
}

func (l *sendOrder) shift() (q *Queue) {
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

// addAnswer makes the sender check whether an edge still needs an answer, which a batch may have
// carried.
func (l *sendOrder) addAnswer(q *Queue) {
	l.mu.Lock()
	l.answering, l.newAnswers = append(l.answering, q), true
	l.mu.Unlock()
	l.signal()
}

// recheckAnswers makes the sender check at once all edges that need an answer.
func (l *sendOrder) recheckAnswers() {
	l.mu.Lock()
	l.newAnswers = true
	l.mu.Unlock()
	l.signal()
}

// eachAnswer calls due for every edge that needs an answer, and keeps those for which due returns
// how long to wait. It returns the shortest wait; 0: no edge waits.
func (l *sendOrder) eachAnswer(due func(*Queue) time.Duration) (wait time.Duration) {
	l.mu.Lock()
	all := l.answering
	l.answering = nil
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
	l.answering = append(kept, l.answering...)
	l.mu.Unlock()
	return wait
}

// hasBatches reports whether batches wait to be sent.
func (l *sendOrder) hasBatches() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head < len(l.batches)
}

func (l *sendOrder) stopWhenFlushed() {
	l.mu.Lock()
	l.leaving = true
	l.mu.Unlock()
	l.signal()
}

func (l *sendOrder) flushed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving && l.head == len(l.batches)
}

// sleep waits for a signal, or for so long where wait is above 0. It reports false once ctx ended.
func (l *sendOrder) sleep(ctx context.Context, wait time.Duration) bool {
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
