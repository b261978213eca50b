package line

import "math/bits"

const (
	word = 64
	// least slots of a fifo that has any, and how many it keeps when everybody has left.
	least, keep = 8, 64
)

// fifo gives everybody who arrives the next slot. Who is before one in the line are the live slots
// before its own: they are counted by words of a bitmap, and the words by a Fenwick tree. Slots of
// those who left are taken back when the slots run out; so often that each arrival pays for O(1) of
// it.
type fifo[P Item] struct {
	items []P      // by slot; its cap are the slots there are
	live  []uint64 // a bit for each slot
	tree  []int32  // of live slots by word, from 1
	head  int      // no word before it is live
	n     int
}

func (f *fifo[P]) add(p P) {
	if len(f.items) == cap(f.items) {
		f.resize()
	}
	f.put(p)
}

func (f *fifo[P]) put(p P) {
	at := len(f.items)
	f.items = append(f.items, p)
	*p.Slot() = int32(at)
	f.live[at/word] |= 1 << (at % word)
	f.count(at/word, 1)
	f.n++
}

func (f *fifo[P]) remove(p P) {
	var none P
	at := int(*p.Slot())
	f.items[at] = none
	f.live[at/word] &^= 1 << (at % word)
	f.count(at/word, -1)
	f.n--
	switch {
	case f.n == 0 && cap(f.items) > keep:
		*f = fifo[P]{}
	case f.n == 0:
		f.items, f.head = f.items[:0], 0
	case cap(f.items) > keep && f.n < cap(f.items)/8:
		f.resize()
	}
}

// resize leaves twice the slots that are needed, and gives the live ones the first.
func (f *fifo[P]) resize() {
	was := f.items
	room := max(least, 2*f.n)
	words := (room + word - 1) / word
	*f = fifo[P]{items: make([]P, 0, room), live: make([]uint64, words), tree: make([]int32, words+1)}
	var none P
	for _, p := range was {
		if p != none {
			f.put(p)
		}
	}
}

// count adds to the live slots of a word.
func (f *fifo[P]) count(w int, by int32) {
	for i := w + 1; i < len(f.tree); i += i & -i {
		f.tree[i] += by
	}
}

// rank of one in it, from 1.
func (f *fifo[P]) rank(p P) int {
	at := int(*p.Slot())
	n := bits.OnesCount64(f.live[at/word] & (2<<(at%word) - 1))
	for i := at / word; i > 0; i -= i & -i {
		n += int(f.tree[i])
	}
	return n
}

func (f *fifo[P]) first() P {
	for f.live[f.head] == 0 {
		f.head++
	}
	return f.items[f.head*word+bits.TrailingZeros64(f.live[f.head])]
}

// slot of the one with a rank, 1 to n.
func (f *fifo[P]) slot(rank int) int {
	w := 0
	for step := 1 << (bits.Len(uint(len(f.tree)-1)) - 1); step > 0; step /= 2 {
		if w+step < len(f.tree) && int(f.tree[w+step]) < rank {
			w += step
			rank -= int(f.tree[w])
		}
	}
	live := f.live[w]
	for range rank - 1 {
		live &= live - 1
	}
	return w*word + bits.TrailingZeros64(live)
}

// walk hands over everybody from a rank on, 1 to n; false: it was stopped.
func (f *fifo[P]) walk(rank int, yield func(P) bool) bool {
	at := f.slot(rank)
	live := f.live[at/word] &^ (1<<(at%word) - 1)
	for w := at / word; ; live = f.live[w] {
		for ; live != 0; live &= live - 1 {
			if !yield(f.items[w*word+bits.TrailingZeros64(live)]) {
				return false
			}
		}
		if w++; w == len(f.live) {
			return true
		}
	}
}
