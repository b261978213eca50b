package pushmesh

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestSeqsetAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s seqset
		model := map[uint64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lo := rapid.Uint64Range(0, 60).Draw(t, "lo")
			hi := lo + rapid.Uint64Range(0, 8).Draw(t, "len")
			add := rapid.Bool().Draw(t, "add")
			if add {
				s.add(lo, hi)
			} else {
				s.remove(lo, hi)
			}
			for seq := lo; seq <= hi; seq++ {
				model[seq] = add
			}
		}
		low := uint64(math.MaxUint64)
		for seq := range uint64(80) {
			if s.has(seq) != model[seq] {
				t.Fatalf("has(%d) = %v: %v", seq, s.has(seq), s.spans)
			}
			if model[seq] {
				low = min(low, seq)
			}
		}
		if low != math.MaxUint64 && s.min() != low || low == math.MaxUint64 && !s.empty() {
			t.Fatalf("min %d, want %d", s.min(), low)
		}
		hi, lacking, first := rapid.Uint64Range(0, 80).Draw(t, "hi"), uint64(0), uint64(0)
		for seq := hi; seq > 0; seq-- {
			if !model[seq] {
				lacking, first = lacking+1, seq
			}
		}
		if n, lowest := s.lacks(hi); n != lacking || n > 0 && lowest != first {
			t.Fatalf("of 1 to %d %d are lacking from %d on, want %d from %d on: %v", hi, n, lowest, lacking, first, s.spans)
		}
		for i := 1; i < len(s.spans); i++ {
			if s.spans[i].lo <= s.spans[i-1].hi+1 {
				t.Fatalf("spans touch: %v", s.spans)
			}
		}
	})
}

func TestSeqsetIsBounded(t *testing.T) {
	var s seqset
	filled := false
	for seq := uint64(2); seq < 4*maxSpans; seq += 2 {
		filled = s.add(seq, seq) || filled
	}
	if len(s.spans) > maxSpans || !filled || !s.has(3) {
		t.Fatalf("%d spans", len(s.spans))
	}
	if last := uint64(4*maxSpans - 1); s.has(last) || !s.has(last-1) {
		t.Fatal("the newest gaps must stay")
	}
	s.add(math.MaxUint64-5, math.MaxUint64) // a hostile Progress
	if s.has(5 * maxSpans) {
		t.Fatal("wrapped around")
	}
}
