package position

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestSetAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		model := map[uint64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lo := rapid.Uint64Range(0, 60).Draw(t, "lo")
			hi := lo + rapid.Uint64Range(0, 8).Draw(t, "len")
			add := rapid.Bool().Draw(t, "add")
			if add {
				s.Add(lo, hi)
			} else {
				s.Remove(lo, hi)
			}
			for seq := lo; seq <= hi; seq++ {
				model[seq] = add
			}
		}
		low := uint64(math.MaxUint64)
		for seq := range uint64(80) {
			if s.Has(seq) != model[seq] {
				t.Fatalf("has(%d) = %v: %v", seq, s.Has(seq), s.spans)
			}
			if model[seq] {
				low = min(low, seq)
			}
		}
		if low != math.MaxUint64 && s.Min() != low || low == math.MaxUint64 && !s.Empty() {
			t.Fatalf("min %d, want %d", s.Min(), low)
		}
		hi, lacking, first := rapid.Uint64Range(0, 80).Draw(t, "hi"), uint64(0), uint64(0)
		for seq := hi; seq > 0; seq-- {
			if !model[seq] {
				lacking, first = lacking+1, seq
			}
		}
		if n, lowest := s.Lacks(hi); n != lacking || n > 0 && lowest != first {
			t.Fatalf("of 1 to %d %d are lacking from %d on, want %d from %d on: %v", hi, n, lowest, lacking, first, s.spans)
		}
		for i := 1; i < len(s.spans); i++ {
			if s.spans[i].Lo <= s.spans[i-1].Hi+1 {
				t.Fatalf("spans touch: %v", s.spans)
			}
		}
	})
}

func TestSetIsBounded(t *testing.T) {
	var s Set
	filled := false
	for seq := uint64(2); seq < 4*maxSpans; seq += 2 {
		filled = s.Add(seq, seq) || filled
	}
	if len(s.spans) > maxSpans || !filled || !s.Has(3) {
		t.Fatalf("%d spans", len(s.spans))
	}
	if last := uint64(4*maxSpans - 1); s.Has(last) || !s.Has(last-1) {
		t.Fatal("the newest gaps must stay")
	}
	s.Add(math.MaxUint64-5, math.MaxUint64) // a hostile Progress
	if s.Has(5 * maxSpans) {
		t.Fatal("wrapped around")
	}
}
