package interest

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// key stands for a name: nobody ever asks the table for a name back, so it keeps 128 bits of hashes
// instead. Among ten million names two share a key with a probability of 10⁻²⁵.
type key struct {
	sum   uint64 // XXH64, of which digests are made
	keyed uint64 // secret, so that nobody can choose names that fall together
}

var seed = maphash.MakeSeed()

func keyOf(name string) key { return key{xxhash.Sum64String(name), maphash.String(seed, name)} }

// The topics are spread over parts by their keys. Each has a lock and a table of its own, so that
// growing one, or sweeping it, takes some 100 µs with ten million topics, and holds up who looks
// into this part alone.
const (
	partBits = 10
	parts    = 1 << partBits
)

// topics maps exact topics to the slots that want them. Changes are serialised by the caller; reads
// may run beside them.
type topics struct {
	part [parts]part
	// expected is how many topics a part will hold as far as is known: it grows towards that in few
	// steps.
	expected int
}

func partOfKey(k key) uint64 { return k.keyed >> (64 - partBits) }

func (t *topics) of(k key) *part { return &t.part[partOfKey(k)] }

// expect that there will be n topics in all.
func (t *topics) expect(n int) {
	each := n / parts
	// hashes don't spread more unevenly than that
	t.expected = each + 4*int(math.Sqrt(float64(each)))
}

// add puts s into the set of a topic; false where it was there.
func (t *topics) add(k key, s slot) bool {
	p := t.of(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room(1, t.expected)
	return p.add(k, s)
}

// remove takes s from the set of a topic; false where it was not there.
func (t *topics) remove(k key, s slot) bool { return t.of(k).remove(k, s) }

// part is a hash table with linear probing and no pointers in it: the garbage collector has nothing
// to look at.
type part struct {
	mu      sync.RWMutex
	entries []entry // three quarters full at most
	n       int
	sets    *sets
}

// entry is free while nobody is among its members.
type entry struct {
	key
	members members
}

const minEntries = 8

func home(k key, size int) int {
	hi, _ := bits.Mul64(k.keyed<<partBits, uint64(size))
	return int(hi)
}

// find says where k is, or where it would go; the part has room.
func (p *part) find(k key) (at int, ok bool) {
	for at = home(k, len(p.entries)); p.entries[at].members != 0; {
		if p.entries[at].key == k {
			return at, true
		}
		if at++; at == len(p.entries) {
			at = 0
		}
	}
	return at, false
}

// room grows the part where n more entries need it: by a third, or up to fourfold towards what is
// expected. The steps are quarters of that, so that all tables on the way there take a third of the
// last one's memory together.
func (p *part) room(n, expected int) {
	if n += p.n; n*4 <= len(p.entries)*3 {
		return
	}
	size := max(minEntries, len(p.entries)+len(p.entries)/3, n+n/3+1)
	want := expected + expected/3 + 1
	for want > 4*size {
		want /= 4
	}
	p.resize(max(size, want))
}

// add is for whoever holds the lock, and has made room.
func (p *part) add(k key, s slot) bool {
	at, ok := p.find(k)
	e := &p.entries[at]
	if !ok {
		*e = entry{k, members(s)}
		p.n++
		return true
	}
	next, ok := p.spills().with(e.members, s)
	e.members = next
	return ok
}

func (p *part) spills() *sets {
	if p.sets == nil {
		p.sets = &sets{}
	}
	return p.sets
}

func (p *part) remove(k key, s slot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		return false
	}
	at, ok := p.find(k)
	if !ok {
		return false
	}
	next, n := p.spills().without(p.entries[at].members, func(x slot) bool { return x == s })
	p.entries[at].members = next
	if next == 0 {
		p.free(at)
		p.shrink()
	}
	return n > 0
}

// free closes the hole at an entry that nobody wants any more: what was pushed beyond it moves
// back.
func (p *part) free(hole int) {
	p.n--
	size := len(p.entries)
	for at := hole; ; {
		if at++; at == size {
			at = 0
		}
		e := p.entries[at]
		if e.members == 0 {
			break
		}
		if away(home(e.key, size), at, size) >= away(hole, at, size) {
			p.entries[hole] = e
			hole = at
		}
	}
	p.entries[hole] = entry{}
}

// away is how far it is from one place on to another.
func away(from, to, size int) int {
	if to < from {
		to += size
	}
	return to - from
}

// shrink gives room back once less than a third is used.
func (p *part) shrink() {
	if want := max(minEntries, p.n*3/2); len(p.entries) > 2*want {
		p.resize(want)
	}
}

func (p *part) resize(size int) {
	old := p.entries
	p.entries = make([]entry, size)
	huge(p.entries)
	for _, e := range old {
		if e.members != 0 {
			at, _ := p.find(e.key)
			p.entries[at] = e
		}
	}
}

// sweep takes the slots that gone names from every topic of the part.
func (p *part) sweep(gone func(slot) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := 0; at < len(p.entries); {
		e := &p.entries[at]
		if e.members != 0 {
			if e.members, _ = p.spills().without(e.members, gone); e.members == 0 {
				p.free(at) // what moves here is looked at next
				continue
			}
		}
		at++
	}
	p.shrink()
}
