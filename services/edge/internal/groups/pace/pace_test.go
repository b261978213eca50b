package pace

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What is due comes in the order of its times, as last set.
func TestTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Times[int]
		began := time.Now()
		all := make([]Timed[int], 8)
		want := map[int]int{}
		for i := range all {
			all[i].Of = i
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			switch at := rapid.IntRange(0, 9).Draw(t, "at"); rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				delete(want, i)
				q.Set(&all[i], time.Time{})
			case 1:
				now := began.Add(time.Duration(at))
				got, ok := q.Take(now)
				for _, due := range want {
					if due <= at && (!ok || want[got] > due) {
						t.Fatalf("%d, %v: something is due at %d", got, ok, due)
					}
				}
				if ok {
					if due, known := want[got]; !known || due > at {
						t.Fatalf("%d is taken at %d, it is due at %d, %v", got, at, due, known)
					}
					delete(want, got)
				}
			default:
				want[i] = at
				q.Set(&all[i], began.Add(time.Duration(at)))
			}
			if q.Len() != len(want) {
				t.Fatalf("%d are due, not %d", q.Len(), len(want))
			}
			if at, ok := q.Next(); ok != (len(want) > 0) {
				t.Fatalf("next at %v, %v", at, ok)
			}
		}
	})
}

// Nobody waits for more than one thing of each other, and each one's things keep their order.
func TestTurns(t *testing.T) {
	var q Turns[string, int]
	for round := range 3 {
		for i := range 100 {
			q.Push("a", i)
		}
		q.Push("b", 1000)
		q.Push("c", 2000)
		q.Push("b", 1001)
		if q.Len() != 103 || !q.Waits("a") || q.Waits("d") {
			t.Fatalf("round %d: %d wait", round, q.Len())
		}
		var got []int
		for {
			v, ok := q.Pop()
			if !ok {
				break
			}
			got = append(got, v)
		}
		if len(got) != 103 || !slices.Equal(got[:6], []int{0, 1000, 2000, 1, 1001, 2}) || got[102] != 99 {
			t.Fatalf("round %d: %v", round, got)
		}
		if q.Len() != 0 || q.Waits("a") || len(q.of) != 0 {
			t.Fatalf("round %d: something is kept", round)
		}
	}
}
