package pace

import "github.com/pushmesh/pushmesh/services/edge/internal/walk"

// kept is how many empty queues are kept for whoever comes next, and the most that each has held: a
// burst's memory is given back.
const kept = 64

type queue[V any] struct {
	walk.FIFO[V]
	most int
}

// Turns are queues by who asked, served in turns: one thing of each. The zero value is empty. It is
// not safe for concurrent use.
type Turns[K comparable, V any] struct {
	of     map[K]*queue[V] // of those for whom something waits
	ring   walk.FIFO[K]    // the same, in the order of their turns
	spares []*queue[V]
	n      int
	most   int // of ring
}

// Len is how much waits.
func (t *Turns[K, V]) Len() int { return t.n }

// Waits reports whether something waits for k.
func (t *Turns[K, V]) Waits(k K) bool { return t.of[k] != nil }

// Push adds v behind what waits for k.
func (t *Turns[K, V]) Push(k K, v V) {
	q := t.of[k]
	if q == nil {
		if last := len(t.spares) - 1; last >= 0 {
			q, t.spares = t.spares[last], t.spares[:last]
		} else {
			q = &queue[V]{}
		}
		if t.of == nil {
			t.of = map[K]*queue[V]{}
		}
		t.of[k] = q
		t.ring.Push(k)
		t.most = max(t.most, t.ring.Len())
	}
	q.Push(v)
	q.most = max(q.most, q.Len())
	t.n++
}

// Pop takes the first thing of whose turn it is; false where nothing waits.
func (t *Turns[K, V]) Pop() (v V, ok bool) {
	k, ok := t.ring.Pop()
	if !ok {
		return v, false
	}
	q := t.of[k]
	v, _ = q.Pop()
	t.n--
	if q.Len() > 0 {
		t.ring.Push(k)
		return v, true
	}
	if delete(t.of, k); len(t.of) == 0 && t.most > kept {
		t.of, t.ring, t.most = nil, walk.FIFO[K]{}, 0
	}
	if q.most <= kept && len(t.spares) < kept {
		q.most = 0
		t.spares = append(t.spares, q)
	}
	return v, true
}
