package cursor

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
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
			verifyStored(t, stored)
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
		lo := rapid.Uint64Range(1, 50).Draw(t, "from")
		hi := rapid.Uint64Range(1, 50).Draw(t, "to")
		missing = 0
		for s := lo; s <= hi; s++ {
			if !settled[s] {
				missing++
			}
		}
		if got := c.Missing(lo, hi); got != missing {
			t.Fatalf("Missing(%d, %d) = %d, want %d", lo, hi, got, missing)
		}
		if settled[c.Floor+1] {
			t.Fatalf("floor %d could be higher", c.Floor)
		}
	})
}

// verifyStored: what is stored is as short as can be: ranges ascend, and between any two, and above
// the floor, at least one seq is missing.
func verifyStored(t *rapid.T, c *meshv1.SessionCursor) {
	last := c.GetFloor()
	for i, v := range c.GetAcked() {
		if i%2 == 0 && v <= last+1 || v < last {
			t.Fatalf("ranges %v over floor %d", c.GetAcked(), c.GetFloor())
		}
		last = v
	}
	for seq := range c.GetAttempts() {
		if seq <= c.GetFloor() {
			t.Fatalf("attempts of %d are stored, below the floor %d", seq, c.GetFloor())
		}
	}
}

// What an older or damaged row says is read as far as it makes sense.
func TestAHalfRangeIsPassedOver(t *testing.T) {
	c := New(&meshv1.SessionCursor{Epoch: 7, Floor: 2, Acked: []uint64{5, 6, 9}, Attempts: map[uint64]uint32{1: 3, 6: 2, 7: 4, 8: 0}})
	if got := c.Encode("t"); !slices.Equal(got.GetAcked(), []uint64{5, 6}) || !maps.Equal(got.GetAttempts(), map[uint64]uint32{7: 4}) {
		t.Errorf("ranges %v, attempts %v", got.GetAcked(), got.GetAttempts())
	}
}

// However many attempts are noted, settling many seqs at once takes as long as there are attempts,
// or seqs, whichever is less.
func TestSettlingMuchIsQuick(t *testing.T) {
	c := &Cursor{}
	c.Attempted(1<<62, 1)
	c.Settle(1, 1<<61) // one by one this would not end
	if c.Floor != 1<<61 || c.Attempts(1<<62) != 1 {
		t.Errorf("floor %d, %d attempts", c.Floor, c.Attempts(1<<62))
	}
}

func TestOpenEndsAtTheSpan(t *testing.T) {
	c := &Cursor{Floor: 10}
	if !c.Open(10+Span) || c.Open(11+Span) {
		t.Fatal("the span does not end where it should")
	}
}
