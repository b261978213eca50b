package table

import (
	"fmt"
	"slices"
	"time"
)

// Median of some figures, at least one: of an even number of them, the mean of the two in the
// middle.
func Median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 && n > 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Ratios of a to b round by round: neighbours in time met the same machine.
func Ratios(a, b []float64) []float64 {
	var r []float64
	for i := range min(len(a), len(b)) {
		r = append(r, a[i]/b[i])
	}
	return r
}

// Spread is the least and the largest of some figures, for people.
func Spread(v []float64) string {
	if len(v) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.3g to %.3g", slices.Min(v), slices.Max(v))
}

// Quantile of durations in ms, 0 of none; it sorts them.
func Quantile(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[min(len(took)-1, int(float64(len(took))*q))]) / float64(time.Millisecond)
}
