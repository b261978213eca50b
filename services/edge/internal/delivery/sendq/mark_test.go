package sendq

import (
	"math"
	"testing"
)

func TestMarks(t *testing.T) {
	for _, s := range []float64{0, 1, -1, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		if got, isUnranked := Scored(s).of(); got != s || isUnranked {
			t.Errorf("%g is %g", s, got)
		}
	}
	if _, isUnranked := Unranked.of(); !isUnranked {
		t.Error("unranked is a score")
	}
}
