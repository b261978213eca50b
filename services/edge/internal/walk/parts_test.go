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

// Looking for one among many costs what it looks at, finds it wherever it stands, and ends
// where there is none, also where some go meanwhile.
func TestASearchLooksAtEachOnce(t *testing.T) {
	for _, n := range []int{0, 1, SearchSlice - 1, SearchSlice, SearchSlice + 1, 5*SearchSlice + 7} {
		for _, at := range []int{-1, 0, n / 2, n - 1} {
			var m Search
			for range 2 { // it is ready for the next search once it is done
				looked, slices, cost := map[int]int{}, 0, 0
				for {
					before := len(looked)
					found, done, c := m.Step(n, func(i int) bool { looked[i]++; return i == at })
					if slices, cost = slices+1, cost+c; len(looked)-before > SearchSlice || slices > n+2 {
						t.Fatalf("%d were looked at in one slice, of %d", len(looked)-before, slices)
					}
					if found != (looked[at] > 0) || found && !done {
						t.Fatalf("%d of %d: found %v, done %v", at, n, found, done)
					}
					if done {
						break
					}
				}
				want := n
				if at >= 0 {
					want = n - at
				}
				if len(looked) != min(want, n) || cost > want/SearchedPerUnit || cost < want/SearchedPerUnit-slices {
					t.Fatalf("%d of %d: %d were looked at, which costs %d", at, n, len(looked), cost)
				}
				for i, k := range looked {
					if k != 1 || i < 0 || i >= n {
						t.Fatalf("%d was looked at %d times", i, k)
					}
				}
			}
		}
	}
	var m Search
	_, done, _ := m.Step(2*SearchSlice, func(int) bool { return false })
	if done {
		t.Fatal("it has looked at all in one slice")
	}
	if found, done, _ := m.Step(3, func(i int) bool { return i == 2 }); !found || !done {
		// the others have gone
		t.Fatalf("found %v, done %v among those that are left", found, done)
	}
}
