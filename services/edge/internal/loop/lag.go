package loop

import (
	"math/bits"
	"slices"
	"time"
)

const (
	lagKept = 100
	// lagWarning is the lag above which a sample counts as a warning.
	lagWarning = 50 * time.Millisecond
	lagBuckets = 128
)

// Lag is how late the loop ran what was scheduled every 100 ms.
type Lag struct {
	Samples  uint64
	Warnings uint64 // samples above 50 ms
	Max      time.Duration
	recent   [lagKept]time.Duration
	buckets  [lagBuckets]uint64 // since start, four to a doubling of microseconds
}

// Quantiles of lag.
type Quantiles struct{ P50, P95, P99, Max time.Duration }

func (l *Lag) add(d time.Duration) {
	d = max(d, 0)
	l.recent[l.Samples%lagKept] = d
	l.Samples++
	l.Max = max(l.Max, d)
	if d > lagWarning {
		l.Warnings++
	}
	l.buckets[bucketOf(d)]++
}

// Recent is of the last 100 samples.
func (l *Lag) Recent() Quantiles {
	n := min(l.Samples, lagKept)
	if n == 0 {
		return Quantiles{}
	}
	s := slices.Clone(l.recent[:n])
	slices.Sort(s)
	at := func(p uint64) time.Duration { return s[min(n-1, n*p/100)] }
	return Quantiles{at(50), at(95), at(99), s[n-1]}
}

// SinceStart is of all samples; quantiles are upper bounds within a quarter of a doubling.
func (l *Lag) SinceStart() Quantiles {
	at := func(p uint64) time.Duration {
		rank, seen := (l.Samples*p+99)/100, uint64(0)
		for i, n := range l.buckets {
			if seen += n; n > 0 && seen >= rank {
				return min(bucketEnd(i), l.Max)
			}
		}
		return l.Max
	}
	return Quantiles{at(50), at(95), at(99), l.Max}
}

// bucketOf is exact below 4 µs and has four buckets to a doubling above.
func bucketOf(d time.Duration) int {
	us := uint64(d.Microseconds())
	if us < 4 {
		return int(us)
	}
	exp := bits.Len64(us) - 3
	return min(exp*4+int(us>>exp), lagBuckets-1)
}

func bucketEnd(i int) time.Duration {
	if i < 4 {
		return time.Duration(i+1) * time.Microsecond
	}
	exp := i/4 - 1
	return time.Duration(uint64(i%4+4+1)<<exp) * time.Microsecond
}
