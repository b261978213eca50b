package groups

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkAMessageAmongGroups is a message's way to a member of one of many groups: what the
// others cost it. worst-ms is the longest way of all.
func BenchmarkAMessageAmongGroups(b *testing.B) {
	for _, n := range []int{10, 5_000, 60_000} {
		b.Run(fmt.Sprint("groups=", n), func(b *testing.B) {
			c := newCrowd(b, nil)
			c.fill(b, n)
			var ways []time.Duration
			seq := uint64(0)
			for b.Loop() {
				seq++
				began := time.Now()
				c.publish(b, seq)
				ways = append(ways, time.Since(began))
			}
			slices.Sort(ways)
			b.ReportMetric(float64(ways[len(ways)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(ways[len(ways)-1].Microseconds())/1e3, "worst-ms")
		})
	}
}
