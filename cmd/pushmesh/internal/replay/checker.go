package replay

import "math/bits"

// Checker knows which messages one subscriber must get, and in which order, and counts what comes.
// It drops what the log position proves to be a redelivery, as the SDK does before a handler sees
// it. It has one owner at a time.
type Checker struct {
	says int
	seen []uint64 // a bit for each say of the room

	epoch uint64
	pos   uint64 // highest seq had in epoch
	top   int    // highest index had, plus 1

	Tally
}

// Tally counts the deliveries of one subscriber, or of many.
type Tally struct {
	Delivered uint64
	Duplicate uint64 // the same say under another seq
	Disorder  uint64 // after a later one
	Missing   uint64 // filled in at the end
	Foreign   uint64 // not of this run or room
	Absorbed  uint64 // redelivered, not visible to a handler
}

// Add adds other to t.
func (t *Tally) Add(other Tally) {
	t.Delivered += other.Delivered
	t.Duplicate += other.Duplicate
	t.Disorder += other.Disorder
	t.Missing += other.Missing
	t.Foreign += other.Foreign
	t.Absorbed += other.Absorbed
}

// NewChecker makes the checker of a subscriber that must get says messages.
func NewChecker(says int) *Checker {
	return &Checker{says: says, seen: make([]uint64, (says+63)/64)}
}

// Position is the place in the log up to which everything was had.
func (c *Checker) Position() (epoch, seq uint64) { return c.epoch, c.pos }

// Start sets the place at which a first subscription begins.
func (c *Checker) Start(epoch, head uint64) { c.epoch, c.pos = epoch, head }

// Skip says that the seqs up to seq will not come (again).
func (c *Checker) Skip(epoch, seq uint64) {
	if epoch != c.epoch {
		c.epoch, c.pos = epoch, 0
	}
	c.pos = max(c.pos, seq)
}

// Got takes the message with the given seq, which is the index-th say of the room (below 0: not one
// of this run). It reports whether a handler would see it for the first time.
func (c *Checker) Got(seq uint64, index int) bool {
	if index < 0 || index >= c.says {
		c.pos = max(c.pos, seq)
		c.Foreign++
		return false
	}
	word, bit := index/64, uint64(1)<<(index%64)
	had := c.seen[word]&bit != 0
	late := seq <= c.pos
	c.pos = max(c.pos, seq)
	switch {
	case had && late:
		c.Absorbed++
		return false
	case had:
		c.Duplicate++
		return false
	}
	c.seen[word] |= bit
	c.Delivered++
	if late || index < c.top {
		c.Disorder++
	}
	c.top = max(c.top, index+1)
	return true
}

// Finish counts what is missing and returns everything counted.
func (c *Checker) Finish() Tally {
	had := 0
	for _, w := range c.seen {
		had += bits.OnesCount64(w)
	}
	c.Missing = uint64(c.says - had)
	return c.Tally
}
