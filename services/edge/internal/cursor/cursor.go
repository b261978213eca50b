// Package cursor keeps how far a session has come in one topic: a floor up to which everything is
// settled, the ranges settled above it, and how often what is not settled was attempted.
package cursor

import (
	"maps"
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Span is the most seqs between the floor and the highest settled one.
const Span = 65536

// Cursor of one (session, topic) under one epoch. Settled means ACKed or given up.
type Cursor struct {
	Epoch uint64
	Floor uint64
	// ranges are inclusive, ascending, disjoint, not adjacent, and above Floor+1.
	ranges   []span
	attempts map[uint64]uint32
}

type span struct{ lo, hi uint64 }

// New makes a cursor of what was stored.
func New(c *meshv1.SessionCursor) *Cursor {
	out := &Cursor{Epoch: c.GetEpoch(), Floor: c.GetFloor()}
	acked := c.GetAcked()
	for i := 0; i+1 < len(acked); i += 2 {
		out.Settle(acked[i], acked[i+1])
	}
	for seq, n := range c.GetAttempts() {
		out.Attempted(seq, n)
	}
	return out
}

// Has reports whether seq is settled.
func (c *Cursor) Has(seq uint64) bool {
	if seq <= c.Floor {
		return true
	}
	i := c.find(seq)
	return i < len(c.ranges) && c.ranges[i].lo <= seq
}

// find is the first range that ends at or after seq.
func (c *Cursor) find(seq uint64) int {
	i, _ := slices.BinarySearchFunc(c.ranges, seq, func(s span, seq uint64) int {
		if s.hi < seq {
			return -1
		}
		return 1
	})
	return i
}

// Settle marks lo to hi, inclusive.
func (c *Cursor) Settle(lo, hi uint64) {
	lo = max(lo, c.Floor+1)
	if hi < lo {
		return
	}
	c.forget(lo, hi)
	if lo == c.Floor+1 {
		c.Floor = hi
		c.absorb()
		return
	}
	i := c.find(lo - 1) // one that ends at lo-1 is joined
	j := i
	for ; j < len(c.ranges) && c.ranges[j].lo <= hi+1; j++ {
		lo, hi = min(lo, c.ranges[j].lo), max(hi, c.ranges[j].hi)
	}
	c.ranges = slices.Replace(c.ranges, i, j, span{lo, hi})
}

// absorb takes the ranges that the floor has reached.
func (c *Cursor) absorb() {
	n := 0
	for n < len(c.ranges) && c.ranges[n].lo <= c.Floor+1 {
		c.Floor = max(c.Floor, c.ranges[n].hi)
		n++
	}
	c.ranges = slices.Delete(c.ranges, 0, n)
	if len(c.ranges) == 0 {
		c.ranges = nil
	}
}

func (c *Cursor) forget(lo, hi uint64) {
	if hi-lo < uint64(len(c.attempts)) {
		for seq := lo; seq <= hi; seq++ {
			delete(c.attempts, seq)
		}
		return
	}
	maps.DeleteFunc(c.attempts, func(seq uint64, _ uint32) bool { return lo <= seq && seq <= hi })
}

// Attempted notes that seq, not settled, was delivered n times so far.
func (c *Cursor) Attempted(seq uint64, n uint32) {
	if n == 0 || c.Has(seq) {
		return
	}
	if c.attempts == nil {
		c.attempts = map[uint64]uint32{}
	}
	c.attempts[seq] = max(n, c.attempts[seq])
}

// Attempts is how often seq was delivered as far as was noted.
func (c *Cursor) Attempts(seq uint64) uint32 { return c.attempts[seq] }

// Open reports whether seq is near enough to the floor to be sent.
func (c *Cursor) Open(seq uint64) bool { return seq <= c.Floor+Span }

// Missing counts the seqs of lo to hi that are not settled.
func (c *Cursor) Missing(lo, hi uint64) uint64 {
	lo = max(lo, c.Floor+1)
	if hi < lo {
		return 0
	}
	n := hi - lo + 1
	for _, r := range c.ranges {
		if a, b := max(r.lo, lo), min(r.hi, hi); a <= b {
			n -= b - a + 1
		}
	}
	return n
}

// Encode is the cursor as it is stored, with a copy of everything.
func (c *Cursor) Encode(topic string) *meshv1.SessionCursor {
	out := &meshv1.SessionCursor{Topic: topic, Epoch: c.Epoch, Floor: c.Floor, Attempts: maps.Clone(c.attempts)}
	for _, r := range c.ranges {
		out.Acked = append(out.Acked, r.lo, r.hi)
	}
	return out
}
