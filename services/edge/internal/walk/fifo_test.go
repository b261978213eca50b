package walk

import (
	"testing"

	"pgregory.net/rapid"
)

// A FIFO gives back what was put into it, in that order, however often it has grown and
// gone around, and keeps nothing that was taken.
func TestAFIFOKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q FIFO[*int]
		var want []*int
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "op") < 3 {
				v := new(int)
				q.Push(v)
				want = append(want, v)
			} else if v, ok := q.Pop(); ok != (len(want) > 0) || ok && v != want[0] {
				t.Fatalf("another one comes out, or none: %v", ok)
			} else if ok {
				want = want[1:]
			}
			if q.Len() != len(want) || len(want) > 0 && *q.Peek() != want[0] {
				t.Fatalf("%d are queued, want %d", q.Len(), len(want))
			}
			for i, v := range want {
				if *q.At(i) != v {
					t.Fatalf("another one is in place %d", i)
				}
			}
			kept := 0
			for _, v := range q.buf {
				if v != nil {
					kept++
				}
			}
			if kept != len(want) || len(q.buf) > max(16, 2*len(want)) && len(q.buf) > 1024 {
				t.Fatalf("%d are kept of %d, in %d places", kept, len(want), len(q.buf))
			}
		}
	})
}
