package cursor

import (
	"testing"

	"pgregory.net/rapid"
)

// The cursor agrees with a plain set of settled seqs, and survives being stored.
func TestCursorAgreesWithSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Cursor{Epoch: 7}
		settled := map[uint64]bool{}
		attempts := map[uint64]uint32{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lo := rapid.Uint64Range(1, 40).Draw(t, "lo")
			hi := lo + rapid.Uint64Range(0, 6).Draw(t, "more")
			if rapid.Bool().Draw(t, "attempt") {
				c.Attempted(lo, 3)
				if !settled[lo] {
					attempts[lo] = 3
				}
				continue
			}
			c.Settle(lo, hi)
			for s := lo; s <= hi; s++ {
				settled[s] = true
				delete(attempts, s)
			}
			stored := c.Encode("t")
			if rapid.Bool().Draw(t, "store") {
				c = New(stored)
			}
			for i, v := range stored.GetAcked() {
				if v <= c.Floor || i > 0 && v < stored.GetAcked()[i-1] {
					t.Fatalf("ranges %v over floor %d", stored.GetAcked(), c.Floor)
				}
			}
		}
		missing := uint64(0)
		for s := uint64(1); s <= 50; s++ {
			if c.Has(s) != settled[s] {
				t.Fatalf("Has(%d) = %v", s, c.Has(s))
			}
			if c.Attempts(s) != attempts[s] {
				t.Fatalf("Attempts(%d) = %d, want %d", s, c.Attempts(s), attempts[s])
			}
			if !settled[s] {
				missing++
			}
		}
		if got := c.Missing(1, 50); got != missing {
			t.Fatalf("Missing = %d, want %d", got, missing)
		}
		if settled[c.Floor+1] {
			t.Fatalf("floor %d could be higher", c.Floor)
		}
	})
}

func TestOpenEndsAtTheSpan(t *testing.T) {
	c := &Cursor{Floor: 10}
	if !c.Open(10+Span) || c.Open(11+Span) {
		t.Fatal("the span does not end where it should")
	}
}
