package topic

import (
	"fmt"
	"testing"
)

// BenchmarkIndex matches as an edge does: 100,000 filters with wildcards of five kinds, and topics
// that meet some or none.
func BenchmarkIndex(b *testing.B) {
	var x Index[int]
	filters := make([]string, 100_000)
	for i := range filters {
		filters[i] = []string{"user/%d/#", "room/%d/+", "room/+/chat/%d", "site/%d/+/temperature", "site/+/%d/#"}[i%5]
		filters[i] = fmt.Sprintf(filters[i], i/5)
		x.Add(filters[i], i)
	}
	var topics [3][1024]string
	for i := range 1024 {
		topics[0][i] = fmt.Sprintf("room/%d/chat", i*7)
		topics[1][i] = fmt.Sprintf("site/%d/%d/temperature", i*7, i*3)
		topics[2][i] = fmt.Sprintf("other/%d/chat", i)
	}
	for k, name := range []string{"hit", "deep", "miss"} {
		b.Run(name, func(b *testing.B) {
			var found []int
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				found = x.Match(found[:0], topics[k][i%1024])
			}
		})
	}
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f := filters[i%len(filters)]
			x.Remove(f, i%len(filters))
			x.Add(f, i%len(filters))
		}
	})
	b.Run("fill", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var x Index[int]
			for i, f := range filters {
				x.Add(f, i)
			}
		}
		b.ReportMetric(float64(len(filters)), "filters")
	})
}
