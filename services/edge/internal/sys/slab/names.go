package slab

import (
	"hash/maphash"
	"math/bits"
)

// Names finds values by their name, as a map would, where the collector does not look. It grows and
// shrinks by one bucket at a time (Litwin's linear hashing), so that no call takes long. A value is
// linked into its bucket through itself.
type Names[T any, P named[T]] struct {
	seed    maphash.Seed
	arrays  *Arrays
	buckets List[T] // heads of chains
	n       int
}

type named[T any] interface {
	*T
	// Name must not change while the value is found by it.
	Name() string
	// Next is the place for a link.
	Next() **T
}

// NewNames has its memory from arrays.
func NewNames[T any, P named[T]](arrays *Arrays) *Names[T, P] {
	return &Names[T, P]{seed: maphash.MakeSeed(), arrays: arrays}
}

// bucketsPerName is how many buckets there may be for each name; there is one after growing.
const bucketsPerName = 4

// Len is how many there are.
func (s *Names[T, P]) Len() int { return s.n }

// Get finds a value, or nil.
func (s *Names[T, P]) Get(name string) *T {
	if s.n == 0 {
		return nil
	}
	p := s.buckets.At(s.bucket(name))
	for p != nil && P(p).Name() != name {
		p = *P(p).Next()
	}
	return p
}

// Put adds a value whose name is not there.
func (s *Names[T, P]) Put(p *T) {
	if s.n++; s.n > s.buckets.Len() {
		s.split()
	}
	s.link(s.bucket(P(p).Name()), p)
}

// Drop takes a value out that is there.
func (s *Names[T, P]) Drop(p *T) {
	at := s.bucket(P(p).Name())
	if head := s.buckets.At(at); head == p {
		s.buckets.Set(at, *P(p).Next())
	} else {
		for *P(head).Next() != p {
			head = *P(head).Next()
		}
		*P(head).Next() = *P(p).Next()
	}
	*P(p).Next() = nil
	s.n--
	for range bucketsPerName {
		if s.buckets.Len() > bucketsPerName*s.n {
			s.merge()
		}
	}
}

func (s *Names[T, P]) link(at int, p *T) {
	*P(p).Next() = s.buckets.At(at)
	s.buckets.Set(at, p)
}

// bucket of a name: as many low bits of its hash as there are buckets for.
func (s *Names[T, P]) bucket(name string) int {
	hash, top := maphash.String(s.seed, name), 1<<bits.Len(uint(s.buckets.Len()-1))
	at := int(hash & uint64(top-1))
	if at >= s.buckets.Len() {
		at -= top / 2
	}
	return at
}

// split adds a bucket, and gives it what it should have of the one that shares its lower bits.
func (s *Names[T, P]) split() {
	added := s.buckets.Len()
	s.buckets.Append(s.arrays, nil)
	if added == 0 {
		return
	}
	from := added - 1<<(bits.Len(uint(added))-1)
	p := s.buckets.At(from)
	s.buckets.Set(from, nil)
	for p != nil {
		next := *P(p).Next()
		s.link(s.bucket(P(p).Name()), p)
		p = next
	}
}

// merge gives the last bucket's values to the one that shares its lower bits.
func (s *Names[T, P]) merge() {
	last := s.buckets.Len() - 1
	p := s.buckets.At(last)
	s.buckets.Pop(s.arrays)
	for p != nil {
		next := *P(p).Next()
		s.link(s.bucket(P(p).Name()), p)
		p = next
	}
}
