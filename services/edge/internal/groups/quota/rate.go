// Package quota bounds what clients may have made: how much in a second, and how many bytes in all.
package quota

import (
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// burst is how long one may have asked for nothing and catch up.
const burst = 10 * time.Second

// Rate bounds what each of many asks for in a second. Who has asked for nothing for ten seconds may
// ask for ten seconds' worth at once, and is forgotten. It is not safe for concurrent use.
type Rate[K comparable] struct {
	every time.Duration // 0: no limit
	full  map[K]time.Time
	order walk.FIFO[asked[K]] // by when they were first seen, or looked at last
}

type asked[K comparable] struct {
	k  K
	at time.Time
}

// NewRate makes one of so many in a second; 0: no limit.
func NewRate[K comparable](perSecond int) *Rate[K] {
	r := &Rate[K]{full: map[K]time.Time{}}
	if perSecond > 0 {
		r.every = time.Second / time.Duration(perSecond)
	}
	return r
}

// Len is how many are known.
func (r *Rate[K]) Len() int { return len(r.full) }

// Take charges k for one, and says how long it has to wait where that is too many; then nothing is
// charged.
func (r *Rate[K]) Take(k K, now time.Time) (wait time.Duration) {
	if r.every == 0 {
		return 0
	}
	r.forget(now)
	full, known := r.full[k]
	if !known {
		r.order.Push(asked[K]{k, now})
	}
	if full.Before(now) {
		full = now
	}
	full = full.Add(r.every)
	if wait = full.Sub(now) - burst; wait > 0 {
		return wait
	}
	r.full[k] = full
	return 0
}

// forget drops some who may ask for everything again.
func (r *Rate[K]) forget(now time.Time) {
	for range 2 {
		if r.order.Len() == 0 || now.Sub(r.order.Peek().at) < burst {
			return
		}
		one, _ := r.order.Pop()
		if r.full[one.k].After(now) {
			one.at = now
			r.order.Push(one)
		} else {
			delete(r.full, one.k)
		}
	}
}
