package admission

import (
	"math/bits"
	"sync/atomic"
)

// counts are connections by address: a hash table of words, each a part of the hash and a count. A
// word that counts nobody is 0, and free. An address lies anywhere within reach of where its hash
// says, so that nothing is ever moved.
type counts struct {
	words []atomic.Uint64
	mask  uint64
}

const (
	countBits = 24
	countMask = 1<<countBits - 1
	// reach is how many words are looked at. The table has two for each connection: that none of
	// these is free does not happen by chance.
	reach = 32
	// mostTries bounds how often a word is looked at again that another loop has changed meanwhile.
	mostTries = 16
	// unbounded is for how many connections there is room where these have no limit.
	unbounded = 1 << 20
)

func newCounts(connections int) *counts {
	if connections <= 0 {
		connections = unbounded
	}
	n := max(1<<bits.Len64(uint64(connections)*2-1), reach)
	return &counts{words: make([]atomic.Uint64, n), mask: uint64(n - 1)}
}

// enter counts one more, unless there are limit already. place is the word's number and 1; 0 where
// there was no room, and nothing is counted.
func (c *counts) enter(hash uint64, limit int) (place uint32, ok bool) {
	for range mostTries {
		place, ok, again := c.try(hash, limit)
		if !again {
			return place, ok
		}
	}
	return 0, true
}

func (c *counts) try(hash uint64, limit int) (place uint32, ok, again bool) {
	name := named(hash)
	at, found := c.find(hash, name)
	if at < 0 {
		return 0, true, false
	}
	word, v := &c.words[at], name|1
	if found == 0 {
		if !word.CompareAndSwap(0, v) {
			return 0, false, true
		}
		// Another loop may have given the same address a word at the same time: a nearer one, which
		// was free by then.
		if c.twice(hash, name, at) {
			c.leave(uint32(at) + 1)
			return 0, false, true
		}
		return uint32(at) + 1, true, false
	}
	if found&countMask >= uint64(min(limit, countMask)) {
		return 0, false, false
	}
	return uint32(at) + 1, true, !word.CompareAndSwap(found, found+1)
}

// find looks for the word of an address, or for one that is free; -1: neither is within reach.
func (c *counts) find(hash, name uint64) (at int, found uint64) {
	at = -1
	for i := range uint64(reach) {
		n := int((hash + i) & c.mask)
		switch v := c.words[n].Load(); {
		case v == 0:
			if at < 0 {
				at = n
			}
		case v&^countMask == name:
			return n, v
		}
	}
	return at, 0
}

// twice reports whether the address has a word beside the one given.
func (c *counts) twice(hash, name uint64, but int) bool {
	for i := range uint64(reach) {
		n := int((hash + i) & c.mask)
		if v := c.words[n].Load(); n != but && v != 0 && v&^countMask == name {
			return true
		}
	}
	return false
}

// leave counts one less.
func (c *counts) leave(place uint32) {
	word := &c.words[place-1]
	for {
		v := word.Load()
		next := v - 1
		if v&countMask <= 1 {
			next = 0
		}
		if word.CompareAndSwap(v, next) {
			return
		}
	}
}

// named is the part of the hash that names an address in its word: not the bits that say where that
// is.
func named(hash uint64) uint64 {
	return max(hash&^countMask, 1<<countBits)
}
