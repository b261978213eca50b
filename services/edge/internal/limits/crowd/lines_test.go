package crowd

import (
	"testing"

	"pgregory.net/rapid"
)

// asked is one that waits.
type asked struct {
	from string
	id   uint32
}

// Lines lose none and double none, in whatever order they come, go and give way.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, next := newLines[asked](), 0
		want := map[string][]uint32{}
		count := func() (n int) {
			for _, l := range want {
				n += len(l)
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			from := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "from")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				next++
				s.push(from, asked{from, uint32(next)})
				want[from] = append(want[from], uint32(next))
			case 2:
				a, ok := s.pop()
				if ok != (count() > 0) {
					t.Fatalf("pop says %v of %d", ok, count())
				}
				if l := want[a.from]; ok {
					if l[0] != a.id {
						t.Fatalf("%d comes before %d", a.id, l[0])
					}
					want[a.from] = l[1:]
				}
			default:
				most := 0
				for _, l := range want {
					most = max(most, len(l))
				}
				a, ok := s.giveWay(from)
				if ok != (most > len(want[from])+1) {
					t.Fatalf("%v gives way to %d, the most is %d", ok, len(want[from]), most)
				}
				if l := want[a.from]; ok {
					if len(l) != most || l[len(l)-1] != a.id {
						t.Fatalf("the last of another gave way")
					}
					want[a.from] = l[:len(l)-1]
				}
			}
			if s.n != count() || len(s.of) != s.order.Len() {
				t.Fatalf("%d wait, want %d; %d lines, %d in order", s.n, count(), len(s.of), s.order.Len())
			}
		}
	})
}
