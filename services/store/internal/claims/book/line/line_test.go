package line

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type waiter struct {
	slot  int32
	level uint8
	seq   int
}

func (w *waiter) Slot() *int32 { return &w.slot }

// A line is at all times what a sorted slice is.
func TestAgainstASlice(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var l Line[*waiter]
		var want []*waiter
		most := []int{3, 40, 700}[r.IntN(3)]
		for step := range 4000 {
			if len(want) < most && r.IntN(2*most) >= len(want) {
				w := &waiter{level: uint8(r.IntN(3) * r.IntN(3)), seq: step}
				l.Add(w.level, w)
				at, _ := slices.BinarySearchFunc(want, w, order)
				want = slices.Insert(want, at, w)
			} else if len(want) > 0 {
				at := r.IntN(len(want)) * r.IntN(2)
				l.Remove(want[at].level, want[at])
				want = slices.Delete(want, at, at+1)
			}
			if r.IntN(1000) == 0 { // nearly everybody leaves
				for len(want) > 2 {
					l.Remove(want[1].level, want[1])
					want = slices.Delete(want, 1, 2)
				}
			}
			compare(t, r, &l, want)
		}
	}
}

func order(a, b *waiter) int {
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.seq, b.seq))
}

func compare(t *testing.T, r *rand.Rand, l *Line[*waiter], want []*waiter) {
	t.Helper()
	if l.Len() != len(want) {
		t.Fatalf("%d wait, not %d", l.Len(), len(want))
	}
	if len(want) == 0 {
		for range l.From(1) {
			t.Fatal("an empty line has somebody")
		}
		return
	}
	if l.First() != want[0] {
		t.Fatal("another is first")
	}
	at := r.IntN(len(want))
	if got := l.Position(want[at].level, want[at]); got != at+1 {
		t.Fatalf("position %d, not %d", got, at+1)
	}
	walked := at
	for position, w := range l.From(at + 1) {
		if position != walked+1 || w != want[walked] {
			t.Fatalf("position %d has another", position)
		}
		if walked++; walked > at+200 {
			break
		}
	}
	if walked != min(len(want), at+201) {
		t.Fatalf("the walk from %d of %d ended at %d", at, len(want), walked)
	}
	key := &waiter{level: uint8(r.IntN(6)), seq: want[at].seq}
	first, _ := slices.BinarySearchFunc(want, key, order)
	if got := l.Search(key.level, func(w *waiter) bool { return w.seq >= key.seq }); got != first+1 {
		t.Fatalf("search found %d, not %d", got, first+1)
	}
}

// What nobody waits in any more keeps little.
func TestShrinks(t *testing.T) {
	var l Line[*waiter]
	var all []*waiter
	for range 10_000 {
		all = append(all, &waiter{})
		l.Add(0, all[len(all)-1])
	}
	for _, w := range all[:9_990] {
		l.Remove(0, w)
	}
	if n := cap(l.of[0].items); n > 2*keep {
		t.Errorf("%d slots for 10 who wait", n)
	}
}
