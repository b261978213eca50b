// Package wheel is a coarse timing wheel: one due time per numbered owner, no timer and no
// allocation for each. A time is kept to within one tick, never early.
package wheel

import "github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"

// a power of two; times further away than this many ticks stay for another round
const buckets = 512

// Wheel is used by one goroutine. Owners are small numbers (slots of a slab); times are nanoseconds
// from any fixed point.
type Wheel struct {
	tick  int64
	now   uint32 // the last tick that was taken
	heads [buckets]uint32
	nodes slab.Slab[node] // by owner
	due   []uint32        // taken from the wheel, not fired yet
	at    uint32          // link to the next owner to look at for the tick now, 0 where all were
}

// node is one owner's place. Links are owner+1, so that 0 is none; due 0 is not set.
type node struct{ prev, next, due uint32 }

// New makes a wheel with ticks of so many nanoseconds.
func New(tick int64) *Wheel { return &Wheel{tick: tick} }

func (w *Wheel) node(owner uint32) *node { return w.nodes.At(int(owner)) }

// Set makes owner due at the time given, whatever it was before.
func (w *Wheel) Set(owner uint32, at int64) {
	for w.nodes.Len() <= int(owner) {
		w.nodes.Take()
	}
	n, due := w.node(owner), w.tickOf(at)
	if n.due == due {
		return
	}
	w.Clear(owner)
	head := &w.heads[due%buckets]
	*n = node{next: *head, due: due}
	if *head != 0 {
		w.node(*head - 1).prev = owner + 1
	}
	*head = owner + 1
}

// Sooner makes owner due at the time given unless it is due earlier.
func (w *Wheel) Sooner(owner uint32, at int64) {
	if int(owner) < w.nodes.Len() {
		if due := w.node(owner).due; due != 0 && due <= w.tickOf(at) {
			return
		}
	}
	w.Set(owner, at)
}

// Clear takes owner off the wheel.
func (w *Wheel) Clear(owner uint32) {
	if int(owner) >= w.nodes.Len() || w.node(owner).due == 0 {
		return
	}
	n := w.node(owner)
	if w.at == owner+1 {
		w.at = n.next
	}
	if n.prev != 0 {
		w.node(n.prev - 1).next = n.next
	} else {
		w.heads[n.due%buckets] = n.next
	}
	if n.next != 0 {
		w.node(n.next - 1).prev = n.prev
	}
	*n = node{}
}

// Advance fires what is due until that has cost budget, as fire says, and reports whether more is
// due already. An owner that fires is off the wheel. One that was cleared after it came due may
// still fire: fire looks at its own deadlines.
func (w *Wheel) Advance(now int64, budget int, fire func(owner uint32) (cost int)) (more bool) {
	for budget > 0 {
		if len(w.due) == 0 && !w.collect(now) {
			return false
		}
		if len(w.due) == 0 {
			budget-- // none of those was due
			continue
		}
		owner := w.due[len(w.due)-1]
		w.due = w.due[:len(w.due)-1]
		budget -= max(fire(owner), 1)
	}
	return len(w.due) > 0 || w.at != 0 || int64(w.now) < now/w.tick
}

// collectMost is how many owners are looked at before some of them are fired.
const collectMost = 64

// collect takes owners of the next tick that has any, some of them at a time; false where time has
// not come that far.
func (w *Wheel) collect(now int64) bool {
	for w.at == 0 {
		if int64(w.now) >= now/w.tick {
			return false
		}
		w.now++
		w.at = w.heads[w.now%buckets]
	}
	for n := 0; w.at != 0 && n < collectMost; n++ {
		owner := w.at - 1
		w.at = w.node(owner).next
		if w.node(owner).due <= w.now {
			w.Clear(owner)
			w.due = append(w.due, owner)
		}
	}
	return true
}

// tickOf rounds up and is never a tick that was taken already.
func (w *Wheel) tickOf(at int64) uint32 {
	return max(uint32((at+w.tick-1)/w.tick), w.now+1)
}
