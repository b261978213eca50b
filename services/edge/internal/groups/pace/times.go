// Package pace orders work of which there may be very much: what is to be looked at by time, and
// what waits by who asked for it, so that nobody waits for more than one thing of each other.
package pace

import (
	"container/heap"
	"time"
)

// Timed is something with a time at which it is due. Of is set by its owner; the zero value is not
// due. It belongs to one Times.
type Timed[V any] struct {
	Of    V
	at    time.Time
	place int // in Times, from 1 on; 0: it is not due
}

// Times are what is due, the earliest first. The zero value is empty. It is not safe for concurrent
// use.
type Times[V any] struct{ all byTime[V] }

// Len is how many are due at any time.
func (q *Times[V]) Len() int { return len(q.all) }

// Set has t be due at a time, instead of any before; the zero time: at none.
func (q *Times[V]) Set(t *Timed[V], at time.Time) {
	switch {
	case at.IsZero():
		if t.place > 0 {
			heap.Remove(&q.all, t.place-1)
		}
	case t.place == 0:
		t.at = at
		heap.Push(&q.all, t)
	case !t.at.Equal(at):
		t.at = at
		heap.Fix(&q.all, t.place-1)
	}
}

// Next is the earliest time; false where nothing is due.
func (q *Times[V]) Next() (at time.Time, ok bool) {
	if len(q.all) == 0 {
		return at, false
	}
	return q.all[0].at, true
}

// Is reports whether one is due by now.
func (q *Times[V]) Is(now time.Time) bool { return len(q.all) > 0 && !q.all[0].at.After(now) }

// Take takes out the one that is due first; false where none is due by now.
func (q *Times[V]) Take(now time.Time) (v V, ok bool) {
	if !q.Is(now) {
		return v, false
	}
	return heap.Pop(&q.all).(*Timed[V]).Of, true
}

type byTime[V any] []*Timed[V]

func (h byTime[V]) Len() int           { return len(h) }
func (h byTime[V]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h byTime[V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push is heap's own.
func (h *byTime[V]) Push(x any) {
	t := x.(*Timed[V])
	*h = append(*h, t)
	t.place = len(*h)
}

// Pop is heap's own.
func (h *byTime[V]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.place = 0
	return t
}
