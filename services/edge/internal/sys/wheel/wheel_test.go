package wheel

import (
	"testing"

	"pgregory.net/rapid"
)

// The wheel agrees with a plain map of due ticks: nobody fires early, and nobody later than a tick
// after.
func TestWheelAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const tick = 10
		w := New(tick)
		want := map[uint32]int64{}
		var now int64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			owner := rapid.Uint32Range(0, 20).Draw(t, "owner")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				at := now + rapid.Int64Range(0, 2*buckets*tick).Draw(t, "in")
				w.Set(owner, at)
				want[owner] = at
			case 1:
				at := now + rapid.Int64Range(0, 1000).Draw(t, "in")
				w.Sooner(owner, at)
				if have, ok := want[owner]; !ok || (at+tick-1)/tick < (have+tick-1)/tick {
					want[owner] = at
				}
			case 2:
				w.Clear(owner)
				delete(want, owner)
			case 3:
				now += rapid.Int64Range(0, 400).Draw(t, "pass")
				for w.Advance(now, 3, func(o uint32) int {
					at, ok := want[o]
					if !ok || at > now {
						t.Fatalf("owner %d fired at %d, due %d (%v)", o, now, at, ok)
					}
					delete(want, o)
					return 1
				}) {
				}
				for o, at := range want {
					if at+tick < now-tick {
						t.Fatalf("owner %d due %d has not fired at %d", o, at, now)
					}
				}
			}
		}
	})
}

func TestAdvanceKeepsItsBudget(t *testing.T) {
	w := New(1)
	for o := range uint32(10) {
		w.Set(o, 5)
	}
	fired := 0
	if more := w.Advance(5, 4, func(uint32) int { fired++; return 1 }); fired != 4 || !more {
		t.Fatalf("fired %d, more %v", fired, more)
	}
	if more := w.Advance(5, 100, func(uint32) int { fired++; return 1 }); fired != 10 || more {
		t.Fatalf("fired %d, more %v", fired, more)
	}
}

// Owners that come due together are looked at some at a time, whatever becomes of the others
// meanwhile.
func TestManyOwnersOfOneTickAreTakenInParts(t *testing.T) {
	const owners = 10 * collectMost
	w := New(1)
	for o := range uint32(owners) {
		w.Set(o, 5+int64(o%2)*buckets) // half of them are of another round
	}
	fired, cleared := map[uint32]bool{}, map[uint32]bool{}
	for more := true; more; {
		before := len(fired) + len(w.due)
		more = w.Advance(5, 1, func(o uint32) int { fired[o] = true; return 1 })
		if n := len(fired) + len(w.due) - before; n > collectMost {
			t.Fatalf("%d owners were taken in one go", n)
		}
		if w.at != 0 { // the very next one is taken off
			cleared[w.at-1] = true
			w.Clear(w.at - 1)
		}
	}
	for o := range uint32(owners) {
		if due := o%2 == 0 && !cleared[o]; fired[o] != due {
			t.Fatalf("owner %d fired: %v, was due: %v", o, fired[o], due)
		}
	}
}
