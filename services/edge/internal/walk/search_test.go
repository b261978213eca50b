package walk

import "testing"

// Looking for one among many costs what it looks at, finds it wherever it stands, and ends
// where there is none, also where some go meanwhile.
func TestSearchLooksAtEachOnce(t *testing.T) {
	for _, n := range []int{0, 1, SearchSlice - 1, SearchSlice, SearchSlice + 1, 5*SearchSlice + 7} {
		for _, at := range []int{-1, 0, n / 2, n - 1} {
			var m Search
			for range 2 { // it is ready for the next topic once it is done
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
		t.Fatalf("found %v, done %v among the others", found, done)
	}
}
