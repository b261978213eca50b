package slab_test

import (
	"fmt"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// A list holds what a slice would, and has given everything back when it is empty.
func TestListIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var things slab.Slab[thing]
		var arrays slab.Arrays
		lists := make([]slab.List[thing], 3)
		want := make([][]*thing, len(lists))
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at := rapid.IntRange(0, len(lists)-1).Draw(t, "list")
			l, w := &lists[at], &want[at]
			n := rapid.SampledFrom([]int{1, 2, 7, 200, 600, 3000}).Draw(t, "n")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				for range n {
					p := things.Take()
					l.Append(&arrays, p)
					*w = append(*w, p)
				}
			case 1:
				for range min(n, len(*w)) {
					l.Pop(&arrays)
					*w = (*w)[:len(*w)-1]
				}
			case 2:
				if len(*w) > 0 {
					i := n % len(*w)
					l.Set(i, l.At(l.Len()-1))
					(*w)[i] = (*w)[len(*w)-1]
				}
			default:
				for range min(n, len(*w)) {
					i, last := n%len(*w), len(*w)-1
					if moved := l.Take(&arrays, i); i < last != (moved == (*w)[last]) {
						t.Fatalf("place %d of %d went to another one", i, last+1)
					}
					(*w)[i], *w = (*w)[last], (*w)[:last]
				}
			}
			for i := range lists {
				same(t, &lists[i], want[i])
			}
		}
		for i := range lists {
			for lists[i].Len() > 0 {
				lists[i].Pop(&arrays)
			}
		}
		if n := arrays.Bytes(); n != 0 {
			t.Fatalf("empty lists hold %d bytes", n)
		}
	})
}

func same(t *rapid.T, l *slab.List[thing], want []*thing) {
	if l.Len() != len(want) {
		t.Fatalf("%d in the list, want %d", l.Len(), len(want))
	}
	for i, p := range l.All() {
		if want[i] != p {
			t.Fatalf("place %d of %d holds another one", i, len(want))
		}
	}
}

// What a list costs stays in proportion to what it holds, also after it was long.
func TestListMemoryFollowsItsLength(t *testing.T) {
	var arrays slab.Arrays
	var l slab.List[thing]
	one := new(slab.Slab[thing]).Take()
	check := func() {
		if n, most := arrays.Bytes(), 64+l.Len()*40+2*8*256; n > most && l.Len() > 1 || l.Len() <= 1 && n != 0 {
			t.Fatalf("%d bytes for %d pointers", n, l.Len())
		}
	}
	for range 20_000 {
		l.Append(&arrays, one)
		check()
	}
	for l.Len() > 0 {
		l.Pop(&arrays)
		check()
	}
}

func BenchmarkListWalk(b *testing.B) {
	for _, n := range []int{1, 1000, 15000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var things slab.Slab[thing]
			var arrays slab.Arrays
			var l slab.List[thing]
			for range n {
				l.Append(&arrays, things.Take())
			}
			sum := 0
			for b.Loop() {
				for i := range l.Len() {
					sum += l.At(i).number
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/item")
			runtime.KeepAlive(&things) // the list points into it
			runtime.KeepAlive(&arrays) // the list lies in it
		})
	}
}
