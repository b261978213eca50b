package sendq

import "testing"

// Rings that nobody uses are kept for others, up to a bound.
func TestRingsThatAreKeptAreBounded(t *testing.T) {
	var r rings
	for size := 2; size <= 1<<17; size *= 2 {
		given := map[*Item]bool{}
		for n := range 10 {
			ring := make([]Item, size)
			given[&ring[0]] = true
			if r.give(ring); n > 0 && (n+1)*size*itemSize > 4*ringBytesKept {
				break
			}
		}
		kept := 0
		for range 10 {
			ring := r.take(size)
			if len(ring) != size {
				t.Fatalf("a ring of %d items is taken for one of %d", len(ring), size)
			}
			if given[&ring[0]] {
				kept++
				delete(given, &ring[0]) // nobody else has it
			}
		}
		want := 10
		for want > 0 && (want-1)*size*itemSize >= ringBytesKept {
			want--
		}
		if size >= 1<<17 {
			want = 0 // so large ones are rare
		}
		if kept > want || want > 0 && kept < min(want, 2) && size < 1<<10 {
			t.Fatalf("%d rings of %d items are kept, want %d", kept, size, want)
		}
	}
	r.give(nil) // is nothing
}
