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
	// ranges are inclusive, ascending, disjoint, not adjacent, and above Floor+1. Where they are
	// very many they are in rare.blocks instead.
	ranges []span
	rare   *rare // nil: nothing
}

// rare is what few cursors have.
type rare struct {
	blocks   blocks            // nil: none
	attempts map[uint64]uint32 // nil: none
}

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

// blocks are nil where the ranges lie side by side.
func (c *Cursor) blocks() blocks {
	if c.rare == nil {
		return nil
	}
	return c.rare.blocks
}

func (c *Cursor) attempts() map[uint64]uint32 {
	if c.rare == nil {
		return nil
	}
	return c.rare.attempts
}

// write makes room for what few cursors have.
func (c *Cursor) write() *rare {
	if c.rare == nil {
		c.rare = &rare{}
	}
	return c.rare
}

// Has reports whether seq is settled.
func (c *Cursor) Has(seq uint64) bool {
	return seq <= c.Floor || has(c.ranges, seq) || c.blocks().has(seq)
}

// Settle marks lo to hi, inclusive.
func (c *Cursor) Settle(lo, hi uint64) {
	lo = max(lo, c.Floor+1)
	if hi < lo {
		return
	}
	c.forget(lo, hi)
	switch b := c.blocks(); {
	case lo == c.Floor+1:
		c.Floor = hi
		c.absorb()
	case b != nil:
		c.keep(b.settle(lo, hi))
	default:
		if c.ranges = join(c.ranges, lo, hi); len(c.ranges) == blockSpans {
			c.write().blocks, c.ranges = blocks{c.ranges}.split(0), nil
		}
	}
}

// keep takes what became of the blocks; few ranges lie side by side again.
func (c *Cursor) keep(b blocks) {
	switch {
	case len(b) == 0:
		b = nil
	case len(b) == 1 && len(b[0]) <= blockSpans/2:
		c.ranges, b = b[0], nil
	}
	c.rare.blocks = b
}

// absorb takes the ranges that the floor has reached. Between any two a seq is missing, so what the
// last of them adds to the floor reaches no other.
func (c *Cursor) absorb() {
	end := uint64(0)
	if b := c.blocks(); b != nil {
		b, end = b.take(c.Floor + 1)
		c.keep(b)
	} else if n := begun(c.ranges, c.Floor+1); n > 0 {
		end = c.ranges[n-1].hi
		if c.ranges = slices.Delete(c.ranges, 0, n); len(c.ranges) == 0 {
			c.ranges = nil
		}
	}
	c.Floor = max(c.Floor, end)
}

func (c *Cursor) forget(lo, hi uint64) {
	attempts := c.attempts()
	switch {
	case len(attempts) == 0:
		return
	case hi-lo < uint64(len(attempts)):
		for seq := lo; seq <= hi; seq++ {
			delete(attempts, seq)
		}
	default:
		maps.DeleteFunc(attempts, func(seq uint64, _ uint32) bool { return lo <= seq && seq <= hi })
	}
	if len(attempts) == 0 {
		c.rare.attempts = nil // one that was large is slow to go over
	}
}

// Attempted notes that seq, not settled, was delivered n times so far.
func (c *Cursor) Attempted(seq uint64, n uint32) {
	if n == 0 || c.Has(seq) {
		return
	}
	r := c.write()
	if r.attempts == nil {
		r.attempts = map[uint64]uint32{}
	}
	r.attempts[seq] = max(n, r.attempts[seq])
}

// Attempts is how often seq was delivered as far as was noted.
func (c *Cursor) Attempts(seq uint64) uint32 { return c.attempts()[seq] }

// Open reports whether seq is near enough to the floor to be sent.
func (c *Cursor) Open(seq uint64) bool { return seq <= c.Floor+Span }

// Missing counts the seqs of lo to hi that are not settled.
func (c *Cursor) Missing(lo, hi uint64) uint64 {
	lo = max(lo, c.Floor+1)
	if hi < lo {
		return 0
	}
	return hi - lo + 1 - count(c.ranges, lo, hi) - c.blocks().count(lo, hi)
}

// Encode is the cursor as it is stored, with a copy of everything.
func (c *Cursor) Encode(topic string) *meshv1.SessionCursor {
	out := &meshv1.SessionCursor{Topic: topic, Epoch: c.Epoch, Floor: c.Floor, Attempts: maps.Clone(c.attempts())}
	b, n := c.blocks(), len(c.ranges)
	for _, spans := range b {
		n += len(spans)
	}
	if n > 0 {
		out.Acked = make([]uint64, 0, 2*n)
	}
	for _, r := range c.ranges {
		out.Acked = append(out.Acked, r.lo, r.hi)
	}
	for _, spans := range b {
		for _, r := range spans {
			out.Acked = append(out.Acked, r.lo, r.hi)
		}
	}
	return out
}
