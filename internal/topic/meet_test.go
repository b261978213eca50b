package topic

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The index finds the filters that Meet says, each once, whatever was added and removed.
func TestAnIndexFindsFiltersThatMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index[string]
		held := map[string]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			if f := genFilter(t); held[f] {
				x.Remove(f, f)
				delete(held, f)
			} else {
				x.Add(f, f)
				held[f] = true
			}
		}
		f := genFilter(t)
		if rapid.Bool().Draw(t, "topic") {
			f = genTopic(t)
		}
		var got, want []string
		whole := x.Meet(f, func(other string) bool {
			got = append(got, other)
			return true
		})
		for other := range held {
			if Meet(f, other) {
				want = append(want, other)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !whole || !slices.Equal(got, want) {
			t.Fatalf("%s meets %v, want %v", f, got, want)
		}
		if most := rapid.IntRange(0, 3).Draw(t, "most"); most < len(want) {
			n := 0
			if x.Meet(f, func(string) bool { n++; return n <= most }) || n != most+1 {
				t.Fatalf("%d are found after the end", n)
			}
		}
	})
}

// What others have elsewhere costs nothing.
func BenchmarkMeet(b *testing.B) {
	for _, others := range []int{100, 10_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			var x Index[int]
			for i := range others {
				x.Add(fmt.Sprintf("room/%d/+", i), i)
			}
			for b.Loop() {
				x.Meet("room/7/#", func(int) bool { return true })
			}
		})
	}
}
