package table

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// Median of some figures, 0 of none: of an even number of them, the mean of the two in the middle.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
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

// Ratio is the median of the ratios of a to b round by round.
func Ratio(a, b []float64) float64 { return Median(Ratios(a, b)) }

// Spread is the least and the largest of some figures, for people.
func Spread(v []float64) string {
	if len(v) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.3g to %.3g", slices.Min(v), slices.Max(v))
}

// Quantile of durations in ms, 0 of none.
func Quantile(took []time.Duration, q float64) float64 {
	ms := make([]float64, len(took))
	for i, d := range took {
		ms[i] = float64(d) / float64(time.Millisecond)
	}
	return At(ms, q)
}

// At is a quantile of figures, 0 of none; it sorts them.
func At(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(float64(len(v))*q))]
}

// LoadAverage of the machine over 1, 5 and 15 minutes.
func LoadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil || len(b) < 14 {
		return "unknown"
	}
	return string(b[:14])
}
