package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/cores"
)

// patience is how long a call waits for its turn to be decoded.
const patience = 10 * time.Second

// turns let so many requests be decoded at a time. Where more want to, addresses take turns, and at
// an address the names of callers do: somebody with thousands of calls at once does not hold up the
// one call of another.
type turns struct {
	mu   sync.Mutex
	free int
	ring []*queue // with somebody in them; the first one is next
}

// queue is who waits at an address: lines with somebody in them, the first one is next.
type queue struct{ ring []*line }

// line is who waits under a name, the first one first.
type line struct {
	queue *queue
	turns []*turn
}

type turn struct {
	came chan struct{} // closed
	gone bool          // nobody waits any more
}

func (t *turns) init() { t.free = 2 * cores.Usable() }

// enter waits for a turn. It reports false where none came in time, or ctx ended.
func (t *turns) enter(ctx context.Context, l *line) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	w := t.join(l)
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.came:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.came:
		t.next()
	default:
		w.gone = true
	}
	return false
}

// join puts somebody at the end of a line. t.mu is held.
func (t *turns) join(l *line) *turn {
	if len(l.turns) == 0 {
		if len(l.queue.ring) == 0 {
			t.ring = append(t.ring, l.queue)
		}
		l.queue.ring = append(l.queue.ring, l)
	}
	w := &turn{came: make(chan struct{})}
	l.turns = append(l.turns, w)
	return w
}

// leave ends a turn.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

// next hands a turn on. t.mu is held.
func (t *turns) next() {
	for len(t.ring) > 0 {
		q := t.ring[0]
		w := q.pop()
		t.ring = slices.Delete(t.ring, 0, 1)
		if len(q.ring) > 0 {
			t.ring = append(t.ring, q)
		}
		if w != nil {
			close(w.came)
			return
		}
	}
	t.free++
}

// pop takes the first one of the line whose turn it is, and still waits; nil: nobody does.
func (q *queue) pop() *turn {
	for len(q.ring) > 0 {
		l := q.ring[0]
		w := l.turns[0]
		l.turns[0] = nil
		l.turns = l.turns[1:]
		q.ring = slices.Delete(q.ring, 0, 1)
		if len(l.turns) > 0 {
			q.ring = append(q.ring, l)
		} else {
			l.turns = nil
		}
		if !w.gone {
			return w
		}
	}
	return nil
}
