package budget

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Loops borrow and give back; together they never have more than there is, and what nobody uses can
// be had by anyone.
func TestGrantsNeverExceedTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loops := rapid.IntRange(1, 8).Draw(t, "loops")
		p := New(rapid.Int64Range(1<<20, 64<<20).Draw(t, "total"), loops)
		check := func() {
			granted := p.free.Load()
			for _, s := range p.shares {
				if granted += s.granted; s.granted < p.own {
					t.Fatalf("a loop has %d of its own %d", s.granted, p.own)
				}
			}
			if granted != p.total || p.free.Load() < 0 {
				t.Fatalf("%d granted or free of %d, %d free", granted, p.total, p.free.Load())
			}
		}
		for range 200 {
			s := p.Share(rapid.IntRange(0, loops-1).Draw(t, "loop"))
			switch n := rapid.IntRange(1, 1<<20).Draw(t, "bytes"); rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if s.Fits(n) {
					s.Charge(n)
				}
			case 1:
				s.Charge(-int(min(int64(n), s.used)))
			default:
				s.Settle(1)
			}
			check()
		}
		for _, s := range p.shares {
			s.Charge(-int(s.used))
		}
		for range 2 {
			// who needed something says so no more, then others keep what they may want again
			for _, s := range p.shares {
				s.Settle(0)
			}
		}
		check()
		if all := p.total - int64(loops)*(p.own+2*p.chunk); p.free.Load() < all || p.needs.Load() != 0 {
			t.Fatalf("%d of %d are free, %d loops need more", p.free.Load(), all, p.needs.Load())
		}
	})
}

// A loop that needs room has others give back what they don't use at once, and is told of by Settle
// until it has some.
func TestOthersGiveBackWhatALoopNeeds(t *testing.T) {
	p := New(8<<20, 2)
	a, b := p.Share(0), p.Share(1)
	for a.Fits(64 << 10) {
		a.Charge(64 << 10)
	}
	for b.Fits(64 << 10) {
		b.Charge(64 << 10)
	}
	if !b.needs || b.used < p.own/2 {
		t.Fatalf("loop b has %d and needs %v", b.used, b.needs)
	}
	if fair, others := a.Settle(3); !others || fair != 8<<20/4 {
		t.Fatalf("loop a is told %v: a connection may owe %d", others, fair)
	}
	if _, others := b.Settle(3); others {
		t.Fatal("loop b hears of its own need")
	}
	a.Charge(-1 << 20)
	a.Settle(3)
	if !b.Fits(512<<10) || b.needs {
		t.Fatal("what loop a gave back can't be had")
	}
}

func TestLoopsBorrowAtOnce(t *testing.T) {
	p := New(64<<20, 4)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			s := p.Share(i)
			for n := range 20_000 {
				if s.Fits(5000) {
					s.Charge(5000)
				}
				if n%7 == 0 {
					s.Charge(-int(s.used))
					s.Settle(i)
				}
			}
			s.Charge(-int(s.used))
		})
	}
	wg.Wait()
	granted := p.free.Load()
	for _, s := range p.shares {
		granted += s.granted
	}
	if granted != p.total {
		t.Fatalf("%d of %d", granted, p.total)
	}
}
