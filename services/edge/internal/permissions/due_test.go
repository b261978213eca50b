package permissions

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is set, set again and cleared, what is due comes in its order, once.
func TestWhatIsDueComesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d due
		timers := make([]timer, 20)
		want := map[*timer]int64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			x := &timers[rapid.IntRange(0, len(timers)-1).Draw(t, "which")]
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				at := rapid.Int64Range(0, 50).Draw(t, "at")
				d.set(x, at)
				want[x] = at
			case 2:
				d.clear(x)
				delete(want, x)
			default:
				now := rapid.Int64Range(0, 50).Draw(t, "now")
				first := int64(1 << 62)
				for _, at := range want {
					first = min(first, at)
				}
				if is := d.any(func() int64 { return now }); is != (first <= now) {
					t.Fatalf("something is due: %v", is)
				}
				if got := d.next(now); got == nil != (first > now) {
					t.Fatalf("got %v, the first is due at %d of %d", got, first, now)
				} else if got != nil {
					if want[got] != first {
						t.Fatalf("what is due at %d comes before %d", want[got], first)
					}
					delete(want, got)
				}
			}
			for i := range timers {
				x := &timers[i]
				if _, is := want[x]; is != (x.place > 0) || is && d.of[x.place-1] != x {
					t.Fatal("a timer is not at its place")
				}
			}
			if len(d.of) != len(want) || slices.Contains(d.of, nil) {
				t.Fatalf("%d are kept, want %d", len(d.of), len(want))
			}
		}
	})
}
