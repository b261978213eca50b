package position

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

const (
	// maxSpans bounds a Set. At the bound the two lowest spans become one.
	maxSpans = 1024
	// rankedSpans bounds one of what comes in the order of scores: of one ranking, 10,000 messages,
	// every second one may be missing, and the next one may have begun.
	rankedSpans = 16384
)

// Span is an inclusive range of seqs.
type Span struct{ Lo, Hi uint64 }

// Set is a set of seqs as ascending spans that neither overlap nor touch. What arrives in order
// costs O(1).
type Set struct {
	spans []Span
	most  int // bounds spans; 0: maxSpans
}

// Empty reports whether nothing is in it.
func (s *Set) Empty() bool { return len(s.spans) == 0 }

// Min is the lowest member; 0 where there is none.
func (s *Set) Min() uint64 {
	if len(s.spans) == 0 {
		return 0
	}
	return s.spans[0].Lo
}

// at is the index of the first span that ends at or after seq.
func (s *Set) at(seq uint64) int {
	if n := len(s.spans); n == 0 || s.spans[n-1].Hi < seq {
		return n
	}
	return sort.Search(len(s.spans), func(i int) bool { return s.spans[i].Hi >= seq })
}

// Has reports whether seq is a member.
func (s *Set) Has(seq uint64) bool {
	i := s.at(seq)
	return i < len(s.spans) && s.spans[i].Lo <= seq
}

// Add puts lo..Hi in. Beyond the bound the gap between the two lowest spans is filled: what lies
// there counts as a member from then on. It reports whether that happened.
func (s *Set) Add(lo, hi uint64) (filled bool) {
	hi = min(hi, math.MaxUint64-1) // so that hi+1 below can't wrap
	if hi < lo {
		return false
	}
	if n := len(s.spans); n > 0 && s.spans[n-1].Hi+1 == lo { // the usual case
		s.spans[n-1].Hi = hi
		return false
	}
	from := lo
	if from > 0 {
		from-- // a span that ends just below is joined
	}
	i := s.at(from)
	j := i
	for j < len(s.spans) && s.spans[j].Lo <= hi+1 {
		lo, hi = min(lo, s.spans[j].Lo), max(hi, s.spans[j].Hi)
		j++
	}
	s.splice(i, j, Span{lo, hi})
	if len(s.spans) <= cmp.Or(s.most, maxSpans) {
		return false
	}
	s.splice(0, 2, Span{s.spans[0].Lo, s.spans[1].Hi})
	return true
}

// Remove takes lo..Hi out.
func (s *Set) Remove(lo, hi uint64) {
	i := s.at(lo)
	j := i
	var left []Span
	for j < len(s.spans) && s.spans[j].Lo <= hi {
		if s.spans[j].Lo < lo {
			left = append(left, Span{s.spans[j].Lo, lo - 1})
		}
		if s.spans[j].Hi > hi {
			left = append(left, Span{hi + 1, s.spans[j].Hi})
		}
		j++
	}
	if i != j {
		s.splice(i, j, left...)
	}
}

// splice replaces spans[i:j].
func (s *Set) splice(i, j int, with ...Span) { s.spans = slices.Replace(s.spans, i, j, with...) }

// Lacks is how many of 1 to hi are not in the set, and the lowest of them.
func (s *Set) Lacks(hi uint64) (n, first uint64) {
	n, first = hi, 1
	for _, sp := range s.spans {
		lo, top := max(sp.Lo, 1), min(sp.Hi, hi)
		if lo > top {
			continue
		}
		n -= top - lo + 1
		if lo <= first {
			first = top + 1
		}
	}
	return n, first
}
