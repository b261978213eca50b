package walk

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is pushed and popped, nothing is lost, values of an owner keep their order, and nobody
// is passed over by an owner who had its turn since.
func TestOwnersTakeTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var turns Turns[int, int]
		waiting := map[int][]int{} // by owner, in order
		since := map[int]map[int]int{}
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			owner := rapid.IntRange(0, 4).Draw(t, "owner")
			if rapid.Bool().Draw(t, "push") {
				turns.Push(owner, owner+10*i)
				waiting[owner] = append(waiting[owner], owner+10*i)
				if len(waiting[owner]) == 1 {
					since[owner] = map[int]int{}
				}
			} else if v, ok := turns.Pop(); ok {
				got := v % 10
				if len(waiting[got]) == 0 || waiting[got][0] != v {
					t.Fatalf("%d came, and %v waited", v, waiting[got])
				}
				waiting[got] = waiting[got][1:]
				since[got] = map[int]int{}
				for other, all := range waiting {
					if other == got || len(all) == 0 {
						continue
					}
					if since[other][got]++; since[other][got] > 1 {
						t.Fatalf("%d had two turns while %d waited", got, other)
					}
				}
			}
			n := 0
			for _, all := range waiting {
				n += len(all)
			}
			if turns.Len() != n {
				t.Fatalf("%d are counted of %d", turns.Len(), n)
			}
		}
		for range turns.Len() {
			turns.Pop()
		}
		if _, ok := turns.Pop(); ok || len(turns.of) > 0 {
			t.Fatal("something is left")
		}
	})
}
