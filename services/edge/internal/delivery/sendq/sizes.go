package sendq

import "math/bits"

// Large queues are listed by their size, eight classes to a doubling, so that a largest is found
// without a walk, to an eighth. The size of a queue is the bytes that it refers to, its own memory,
// and what the kernel holds for it while its socket is stalled.

// sizeClasses are enough for any number of bytes.
const sizeClasses = 256

// Bounds of what makes a queue listed: smaller ones are never trimmed, and cost nothing here.
const (
	leastListed = 2 << 10
	mostListed  = 16 << 10
	// unlisted is about how many queues may be just smaller than what is listed, before they have
	// the whole budget.
	unlisted = 1 << 16
)

// sizes is the list.
type sizes struct {
	shift   int // bits below an eighth of the smallest class
	heads   [sizeClasses]*state
	counts  [sizeClasses]int
	nonzero [sizeClasses / 64]uint64
}

func newSizes(budget int64) sizes {
	return sizes{shift: bits.Len64(uint64(min(max(budget/unlisted, leastListed), mostListed))) - 4}
}

// class of so many bytes; 0: not listed.
func (l *sizes) class(held int) uint8 {
	v := uint(max(held, 0)) >> l.shift
	if v < 8 {
		return 0
	}
	e := bits.Len(v) - 4
	return uint8(min(e*8+int(v>>e)-7, sizeClasses-1))
}

// least is the size of the smallest queues of a class.
func (l *sizes) least(class int) int { return (8 + (class-1)%8) << ((class-1)/8 + l.shift) }

// list puts a queue where it belongs by now.
func (l *sizes) list(s *state) {
	class := l.class(s.held)
	if class == s.class {
		return
	}
	if s.class != 0 {
		l.unlist(s)
	}
	if s.class = class; class == 0 {
		return
	}
	head := l.heads[class]
	if s.next = head; head != nil {
		head.prev = s
	}
	l.heads[class] = s
	l.counts[class]++
	l.nonzero[class/64] |= 1 << (class % 64)
}

func (l *sizes) unlist(s *state) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.heads[s.class] = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	l.counts[s.class]--
	if l.heads[s.class] == nil {
		l.nonzero[s.class/64] &^= 1 << (s.class % 64)
	}
}

// largest is a queue of the highest class; nil: none is listed.
func (l *sizes) largest() *state {
	for i := len(l.nonzero) - 1; i >= 0; i-- {
		if w := l.nonzero[i]; w != 0 {
			return l.heads[i*64+bits.Len64(w)-1]
		}
	}
	return nil
}

// Largest is the owner of a largest queue, to an eighth, and how many bytes that holds; ok is false
// where none is large.
func (h *Shared) Largest() (owner uint32, held int, ok bool) {
	s := h.sizes.largest()
	if s == nil {
		return 0, 0, false
	}
	return s.owner, s.held, true
}

// LargerThan is the owner of a largest queue, if that is of a higher class than one of so many
// bytes.
func (h *Shared) LargerThan(held int) (owner uint32, ok bool) {
	s := h.sizes.largest()
	if s == nil || s.class <= h.sizes.class(held) {
		return 0, false
	}
	return s.owner, true
}

// AtLeast counts the queues that hold so many bytes or more, for each of sizes in ascending order,
// to an eighth. Small queues are not counted.
func (h *Shared) AtLeast(bounds []int, counts []int64) {
	l := &h.sizes
	for class, n := range l.counts {
		if n == 0 {
			continue
		}
		for i, bound := range bounds {
			if l.least(class+1) > bound {
				counts[i] += int64(n)
			}
		}
	}
}
