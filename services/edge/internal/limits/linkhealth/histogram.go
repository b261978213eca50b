package linkhealth

// Bounds of Histogram's buckets in microseconds, the last one without.
var Bounds = [...]uint32{1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000, 6_400_000}

// Histogram of round trips. It belongs to one goroutine.
type Histogram struct {
	Counts [len(Bounds) + 1]uint64
	Sum    uint64 // µs
}

// Add counts a round trip in microseconds.
func (h *Histogram) Add(us uint32) {
	i := 0
	for i < len(Bounds) && us > Bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += uint64(us)
}
