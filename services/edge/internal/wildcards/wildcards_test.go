package wildcards

import (
	"runtime"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// A topic that appears again after a while is told of every subscription that became active
// meanwhile, or that it must look at all of them: none is passed over.
func TestTheLogOfWildcardsPassesNobodyOver(t *testing.T) {
	l := NewLog[int]()
	var all []int // number 1 is the first
	for n := range 3*LogKept + 10 {
		if l.Next() != uint64(n+1) {
			t.Fatalf("number %d is given for the one behind %d", l.Next(), n)
		}
		s := n + 1
		l.Add(s)
		all = append(all, s)
		if len(l.refs) > LogKept || len(l.refs) < min(n+1, LogKept/2) {
			t.Fatalf("%d are kept of %d", len(l.refs), n+1)
		}
		if n%97 != 0 && n%LogKept > 2 && n%LogKept < LogKept-2 {
			continue
		}
		for _, at := range []uint64{0, 1, l.base - 1, l.base, l.base + 1, l.Next() - 1, l.Next()} {
			got, ok := l.Since(at)
			if ok != (at >= l.base) || ok && !slices.Equal(got, all[at-1:]) {
				t.Fatalf("since %d of %d, kept from %d on: %v, %d of them", at, n+1, l.base, ok, len(got))
			}
		}
	}
	if _, ok := l.Since(0); ok { // a topic that is new
		t.Fatal("a new topic need not look at all subscriptions")
	}
}

type one struct{ id, at int }

// crowd is filters with so many subscriptions each, that all match room/1.
func crowd(arrays *slab.Arrays, n int, names ...string) (f Filters[one], all map[int]*one) {
	f, all = NewFilters[one](), map[int]*one{}
	for _, name := range names {
		w := f.Add(name)
		for range n {
			s := &one{id: len(all), at: w.Subscriptions.Len()}
			w.Subscriptions.Append(arrays, s)
			all[s.id] = s
		}
	}
	return f, all
}

func TestAWalkGoesOverThoseThatMatch(t *testing.T) {
	var arrays slab.Arrays
	defer runtime.KeepAlive(&arrays) // lists lie in its memory
	f, all := crowd(&arrays, 3, "room/+", "room/#", "talk/+")
	var w Walk[one]
	if w.Begin(&f, "hall/1") || w.Next() != nil {
		t.Fatal("a topic that no filter matches has subscriptions")
	}
	w.End()
	if !w.Begin(&f, "room/1") {
		t.Fatal("nothing matches room/1")
	}
	seen := map[int]bool{}
	for s := w.Next(); s != nil; s = w.Next() {
		if seen[s.id] || s.id >= 6 {
			t.Fatalf("%d comes, and has come: %v", s.id, seen[s.id])
		}
		seen[s.id] = true
	}
	if w.End(); len(seen) != 6 || len(all) != 9 || f.Len() != 3 || f.Find("talk/+") == nil {
		t.Fatalf("%d of 6 came", len(seen))
	}
}

// Whoever is taken out in the middle of a walk makes it pass nobody over, and visit nobody twice.
func TestAWalkWhoseSubscriptionsGo(t *testing.T) {
	for passed := range 5 {
		for gone := range 4 {
			var arrays slab.Arrays
			f, all := crowd(&arrays, 4, "room/+")
			w, list := Walk[one]{}, &f.Find("room/+").Subscriptions
			w.Begin(&f, "room/1")
			seen := map[int]int{}
			for range passed {
				if s := w.Next(); s != nil {
					seen[s.id]++
				}
			}
			at := gone
			if last, moves := w.StepBack(f.Find("room/+"), at); moves {
				list.Set(at, list.At(last))
				at = last
			}
			list.Take(&arrays, at)
			for s := w.Next(); s != nil; s = w.Next() {
				seen[s.id]++
			}
			for id := range all {
				if seen[id] != 1 && (id != gone || seen[id] > 1) {
					t.Fatalf("%d passed, %d gone: %d is visited %d times", passed, gone, id, seen[id])
				}
			}
			runtime.KeepAlive(&arrays) // the list lies in its memory
		}
	}
}

func TestFiltersThatAreDropped(t *testing.T) {
	var arrays slab.Arrays
	f, _ := crowd(&arrays, 1, "room/+", "room/#")
	var w Walk[one]
	w.Begin(&f, "room/1")
	first := f.Find("room/+")
	w.Forget(first)
	first.Subscriptions.Take(&arrays, 0)
	f.Drop(first)
	if s := w.Next(); s == nil || s.id != 1 || w.Next() != nil || f.Len() != 1 || f.Taken() != 1 || f.Find("room/+") != nil {
		t.Fatalf("of %d filters %d are in use, %v comes", f.Len(), f.Taken(), s)
	}
}
