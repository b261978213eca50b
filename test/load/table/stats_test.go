package table

import (
	"slices"
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	for want, v := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 2, 3}, 7: {7}} {
		if got := Median(v); got != want {
			t.Errorf("median of %v: %v", v, got)
		}
	}
	if r := Ratios([]float64{2, 9, 5}, []float64{1, 3}); !slices.Equal(r, []float64{2, 3}) {
		t.Errorf("ratios %v", r)
	}
	// The machine was three times slower in the second round: that meets both.
	if r := Ratio([]float64{2, 6, 2}, []float64{1, 3, 1}); r != 2 || Ratio(nil, []float64{1}) != 0 {
		t.Errorf("ratio %v", r)
	}
	if s := Spread([]float64{3, 1.2345, 2}); s != "1.23 to 3" {
		t.Error(s)
	}
	if s := Spread(nil); s != "none" {
		t.Error(s)
	}
	var took []time.Duration
	for i := range 100 {
		took = append(took, time.Duration(99-i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := Quantile(took, q); got != want {
			t.Errorf("quantile %v: %v", q, got)
		}
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}
