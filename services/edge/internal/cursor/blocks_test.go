package cursor

import (
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// model is a cursor as a set of seqs, from 1 on.
type model []bool

// stored are the ranges above the floor, as they are to be stored.
func (m model) stored(floor uint64) (acked []uint64) {
	for seq := floor + 1; seq < uint64(len(m)); seq++ {
		switch {
		case !m[seq]:
		case m[seq-1] && len(acked) > 0:
			acked[len(acked)-1] = seq
		default:
			acked = append(acked, seq, seq)
		}
	}
	return acked
}

// verifyBlocks: as few pieces as there can be, none of them empty or too long.
func verifyBlocks(t *rapid.T, c *Cursor) {
	n := len(c.ranges)
	for i, spans := range c.blocks() {
		if n += len(spans); len(spans) == 0 || len(spans) >= blockSpans {
			t.Fatalf("block %d has %d ranges", i, len(spans))
		}
		if i > 0 && len(spans)+len(c.blocks()[i-1]) <= blockSpans/2 {
			t.Fatalf("blocks %d and %d have %d and %d ranges", i-1, i, len(c.blocks()[i-1]), len(spans))
		}
	}
	if (c.blocks() == nil) != (len(c.ranges) > 0 || n == 0) {
		t.Fatalf("%d ranges in %d blocks, %d beside", n, len(c.blocks()), len(c.ranges))
	}
	if c.blocks() != nil && n <= blockSpans/2 || len(c.ranges) >= blockSpans {
		t.Fatalf("%d ranges in %d blocks, %d beside", n, len(c.blocks()), len(c.ranges))
	}
}

// With very many ranges, which lie in blocks, the cursor agrees with a plain set too.
func TestCursorWithManyRangesAgreesWithSet(t *testing.T) {
	const most = 4096
	rapid.Check(t, func(t *rapid.T) {
		c, m := &Cursor{}, make(model, most+1)
		m[0] = true
		settle := func(lo, hi uint64) {
			hi = min(hi, most)
			c.Settle(lo, hi)
			for seq := lo; seq <= hi; seq++ {
				m[seq] = true
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			lo := rapid.Uint64Range(1, most).Draw(t, "lo")
			n := rapid.Uint64Range(1, 400).Draw(t, "n")
			every := rapid.Uint64Range(2, 4).Draw(t, "every")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1: // holes, from the lowest on
				for i := range n {
					settle(lo+i*every, lo+i*every)
				}
			case 2: // from the highest on
				for i := range n {
					settle(lo+(n-1-i)*every, lo+(n-1-i)*every)
				}
			case 3:
				settle(lo, lo+n*every)
			case 4: // what is missing, from the floor on
				for seq := c.Floor + 1; seq <= min(c.Floor+n, most); seq++ {
					settle(seq, seq)
				}
			case 5: // it goes on as it was stored
				c = New(c.Encode("t"))
			}
			verifyBlocks(t, c)
		}
		floor := uint64(0)
		for floor < most && m[floor+1] {
			floor++
		}
		stored := c.Encode("t")
		if want := m.stored(floor); stored.GetFloor() != floor || !slices.Equal(stored.GetAcked(), want) {
			t.Fatalf("floor %d, ranges %v, want %d, %v", stored.GetFloor(), stored.GetAcked(), floor, want)
		}
		if again := New(stored).Encode("t"); again.GetFloor() != floor || !slices.Equal(again.GetAcked(), stored.GetAcked()) {
			t.Fatalf("what was stored comes back as %v", again)
		}
		lo, hi := rapid.Uint64Range(1, most).Draw(t, "from"), rapid.Uint64Range(1, most).Draw(t, "to")
		missing := uint64(0)
		for seq := uint64(1); seq <= most; seq++ {
			if c.Has(seq) != m[seq] {
				t.Fatalf("Has(%d) = %v", seq, c.Has(seq))
			}
			if lo <= seq && seq <= hi && !m[seq] {
				missing++
			}
		}
		if got := c.Missing(lo, hi); got != missing {
			t.Fatalf("Missing(%d, %d) = %d, want %d", lo, hi, got, missing)
		}
	})
}

// The usual cursor, with up to three ranges, has no more than it needs.
func TestUsualCursorIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Cursor{}); n > 48 {
		t.Errorf("a cursor takes %d bytes", n)
	}
	inOrder := testing.AllocsPerRun(100, func() {
		var c Cursor
		for seq := range uint64(100) {
			c.Settle(seq, seq)
		}
	})
	if inOrder > 0 {
		t.Errorf("%v allocations in order", inOrder)
	}
	few := testing.AllocsPerRun(100, func() {
		var c Cursor
		for _, seq := range []uint64{3, 5, 7, 1, 2, 4, 6} {
			c.Settle(seq, seq)
		}
	})
	if few > 3 {
		t.Errorf("%v allocations with three ranges", few)
	}
}

// manyHoles is a cursor with as many ranges as one may have: every second seq is missing.
func manyHoles() *Cursor {
	c := &Cursor{}
	for seq := uint64(2); seq <= Span; seq += 2 {
		c.Settle(seq, seq)
	}
	return c
}

// Where every second seq is settled, those in between are settled from the middle on: a range of
// its own for each, and one that joins two, in turns.
func BenchmarkSettleManyHoles(b *testing.B) {
	b.ReportAllocs()
	for i := 0; i < b.N; {
		b.StopTimer()
		c := &Cursor{}
		for seq := uint64(2); seq <= Span; seq += 4 {
			c.Settle(seq, seq)
		}
		b.StartTimer()
		for seq := uint64(Span / 2); seq < Span && i < b.N; seq, i = seq+4, i+2 {
			c.Settle(seq, seq)
			c.Settle(seq-1, seq-1)
		}
	}
}

// The floor goes on below very many ranges.
func BenchmarkSettleFloorBelowManyHoles(b *testing.B) {
	b.ReportAllocs()
	for i := 0; i < b.N; {
		b.StopTimer()
		c := manyHoles()
		b.StartTimer()
		for seq := uint64(1); seq < Span && i < b.N; seq, i = seq+2, i+1 {
			c.Settle(seq, seq)
		}
	}
}

func BenchmarkSettleInOrder(b *testing.B) {
	b.ReportAllocs()
	var c Cursor
	for i := range b.N {
		c.Settle(uint64(i+1), uint64(i+1))
	}
}

// Two messages come before the one that they follow.
func BenchmarkSettleFewHoles(b *testing.B) {
	b.ReportAllocs()
	var c Cursor
	for i := 0; i < b.N; i += 3 {
		seq := uint64(i)
		c.Settle(seq+2, seq+2)
		c.Settle(seq+3, seq+3)
		c.Settle(seq+1, seq+1)
	}
}

func BenchmarkMissingOfManyHoles(b *testing.B) {
	c := manyHoles()
	for i := range b.N {
		seq := uint64(i%Span + 1)
		c.Missing(seq, seq+16)
	}
}
