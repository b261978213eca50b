package caller

import (
	"sync"
	"testing"
)

func outer(f func()) { f() }
func inner(f func()) { f() }

// deep calls f n calls below.
func deep(n int, f func()) {
	if n > 0 {
		deep(n-1, f)
		return
	}
	f()
}

// Whoever calls is found under what it was called by, however deep, and on its goroutine alone.
func TestWhoCalls(t *testing.T) {
	names := []string{Name(outer), Name(inner)}
	for _, n := range []int{0, 1, 62, 63, 64, 65, 200} {
		deep(n, func() {
			if at := Under(names...); at != -1 {
				t.Errorf("under %d, and in none", at)
			}
			outer(func() {
				deep(n, func() {
					if at := Under(names...); at != 0 {
						t.Errorf("%d deep in the outer one: %d", n, at)
					}
					inner(func() {
						if at := Under(names...); at != 1 {
							t.Errorf("in the inner one: %d", at)
						}
					})
					var other sync.WaitGroup
					other.Go(func() {
						if at := Under(names...); at != -1 {
							t.Errorf("on another goroutine: %d", at)
						}
					})
					other.Wait()
				})
			})
		})
	}
}

// Goroutines that live have ids of their own, which stay.
func TestIDs(t *testing.T) {
	const n = 50
	ids, leave := make(chan uint64, n), make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			id := ID()
			ids <- id
			<-leave
			deep(i, func() {
				if again := ID(); again != id || id == 0 {
					t.Errorf("%d became %d", id, again)
				}
			})
		})
	}
	had := map[uint64]bool{ID(): true}
	for range n {
		had[<-ids] = true
	}
	close(leave)
	all.Wait()
	if len(had) != n+1 {
		t.Errorf("%d ids of %d goroutines", len(had), n+1)
	}
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}

// A call is told by the reader's goroutine where that is in a function of the program, and by the
// functions above it where any is.
func TestWhereACallComesFrom(t *testing.T) {
	me := ID()
	for name, x := range map[string]struct {
		g    Goroutines
		read bool
		any  bool
	}{
		"nothing runs":               {Goroutines{Reader: me}, false, false},
		"a handler runs":             {Goroutines{Reader: me, Handlers: 1}, false, true},
		"on the reader":              {Goroutines{Reader: me, Handlers: 1, Inline: true}, true, true},
		"a callback of the reader's": {Goroutines{Reader: me, Callbacks: 1}, true, true},
		"one of another goroutine's": {Goroutines{Reader: me + 1, Callbacks: 1, Inline: true}, false, true},
	} {
		if got := x.g.OnReader(); got != x.read {
			t.Errorf("%s: on the reader %v", name, got)
		}
		for f, want := range map[string]Site{Name(outer): InQueue, Name(inner): InCrew} {
			if !x.any {
				want = Elsewhere
			}
			call := func() {
				if got := x.g.Site(Name(outer), Name(inner)); got != want {
					t.Errorf("%s, in %s: %v, want %v", name, f, got, want)
				}
			}
			if f == Name(outer) {
				outer(call)
			} else {
				inner(call)
			}
		}
		if got := x.g.Site(Name(outer), Name(inner)); got != Elsewhere {
			t.Errorf("%s: in none of them: %v", name, got)
		}
	}
}
