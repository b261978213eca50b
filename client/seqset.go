package pushmesh

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

const (
	// maxSpans bounds a seqset. At the bound the two lowest spans become one.
	maxSpans = 1024
	// rankedSpans bounds one of what comes in the order of scores: of one ranking, 10,000 messages,
	// every second one may be missing, and the next one may have begun.
	rankedSpans = 16384
)

// span is an inclusive range of seqs.
type span struct{ lo, hi uint64 }

// seqset is a set of seqs as ascending spans that neither overlap nor touch. What arrives in order
// costs O(1).
type seqset struct {
	spans []span
	most  int // bounds spans; 0: maxSpans
}

func (s *seqset) empty() bool { return len(s.spans) == 0 }

// min is the lowest member; 0 where there is none.
func (s *seqset) min() uint64 {
	if len(s.spans) == 0 {
		return 0
	}
	return s.spans[0].lo
}

// at is the index of the first span that ends at or after seq.
func (s *seqset) at(seq uint64) int {
	if n := len(s.spans); n == 0 || s.spans[n-1].hi < seq {
		return n
	}
	return sort.Search(len(s.spans), func(i int) bool { return s.spans[i].hi >= seq })
}

func (s *seqset) has(seq uint64) bool {
	i := s.at(seq)
	return i < len(s.spans) && s.spans[i].lo <= seq
}

// add puts lo..hi in. Beyond the bound the gap between the two lowest spans is filled: what lies
// there counts as a member from then on. It reports whether that happened.
func (s *seqset) add(lo, hi uint64) (filled bool) {
	hi = min(hi, math.MaxUint64-1) // so that hi+1 below can't wrap
	if hi < lo {
		return false
	}
	if n := len(s.spans); n > 0 && s.spans[n-1].hi+1 == lo { // the usual case
		s.spans[n-1].hi = hi
		return false
	}
	from := lo
	if from > 0 {
		from-- // a span that ends just below is joined
	}
	i := s.at(from)
	j := i
	for j < len(s.spans) && s.spans[j].lo <= hi+1 {
		lo, hi = min(lo, s.spans[j].lo), max(hi, s.spans[j].hi)
		j++
	}
	s.splice(i, j, span{lo, hi})
	if len(s.spans) <= cmp.Or(s.most, maxSpans) {
		return false
	}
	s.splice(0, 2, span{s.spans[0].lo, s.spans[1].hi})
	return true
}

// remove takes lo..hi out.
func (s *seqset) remove(lo, hi uint64) {
	i := s.at(lo)
	j := i
	var left []span
	for j < len(s.spans) && s.spans[j].lo <= hi {
		if s.spans[j].lo < lo {
			left = append(left, span{s.spans[j].lo, lo - 1})
		}
		if s.spans[j].hi > hi {
			left = append(left, span{hi + 1, s.spans[j].hi})
		}
		j++
	}
	if i != j {
		s.splice(i, j, left...)
	}
}

// splice replaces spans[i:j].
func (s *seqset) splice(i, j int, with ...span) { s.spans = slices.Replace(s.spans, i, j, with...) }

// lacks is how many of 1 to hi are not in the set, and the lowest of them.
func (s *seqset) lacks(hi uint64) (n, first uint64) {
	n, first = hi, 1
	for _, sp := range s.spans {
		lo, top := max(sp.lo, 1), min(sp.hi, hi)
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
