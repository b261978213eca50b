package sendq

import (
	"math/bits"

	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Limits of one queue.
type Limits struct {
	Messages int
	Bytes    int
}

// Shared is what the queues of one event loop share: their bounds, their memory and its budget, the
// time, and the list of the largest.
type Shared struct {
	limits Limits
	budget *budget.Share
	cost   *walk.Cost // of walks over queues
	ms     uint32     // the time in milliseconds, which wraps around
	wall   uint64     // Unix time in microseconds
	states slab.Pool[state]
	rings  rings
	sizes  sizes
	deep   []uint32 // owners whose queue has grown long
	arena  arena
	// scratch has the headers and tails of the writes in hand, while gathering.
	scratch   []byte
	gathering bool

	bytes   int64 // queued
	kernel  int64 // held by the kernel for stalled sockets
	stalled int64 // sockets
}

// NewShared makes one for queues with these limits, in a budget. cost counts the
// walks over queues.
func NewShared(limits Limits, b *budget.Share, cost *walk.Cost) *Shared {
	return &Shared{limits: limits, budget: b, cost: cost, sizes: newSizes(b.Total()), scratch: make([]byte, 0, 16<<10)}
}

// SetTime tells the time: milliseconds that wrap around, and Unix microseconds.
func (h *Shared) SetTime(ms uint32, wall uint64) { h.ms, h.wall = ms, wall }

// walked counts a walk over n items.
func (h *Shared) walked(n uint32) { h.cost.Add(int(n)) }

// take gives the state of a queue that was empty.
func (h *Shared) take(owner uint32) *state {
	s := h.states.Take()
	s.items, s.owner, s.shared = s.own[:], owner, h
	s.charge(stateSize)
	return s
}

// Budget of all queues.
func (h *Shared) Budget() *budget.Share { return h.budget }

// InUse is how many queues are not empty.
func (h *Shared) InUse() int { return h.states.Taken() }

// Bytes that are queued.
func (h *Shared) Bytes() int64 { return h.bytes }

// KernelBytes is what the kernel holds for the sockets that are stalled, and how many of them there
// are.
func (h *Shared) KernelBytes() (bytes, sockets int64) { return h.kernel, h.stalled }

// Deep takes the owners whose queue has grown long since it was asked last.
func (h *Shared) Deep(dst []uint32) []uint32 {
	dst = append(dst, h.deep...)
	h.deep = h.deep[:0]
	return dst
}

// Full reports whether the limits of a queue keep out a message of so many bytes. beside is what
// counts for the queue and is not in it. An empty queue takes any.
func (h *Shared) Full(q Queue, size, beside int) bool {
	s := q.s
	return int(s.messages) >= h.limits.Messages || s.bytes+beside+size > h.limits.Bytes && s.messages > 0
}

// Fits reports whether so many messages, which are so many items and bytes, may be queued together.
func (h *Shared) Fits(q Queue, messages, items, size, beside int) bool {
	s := q.s
	return int(s.messages)+messages <= h.limits.Messages && s.bytes+beside+size <= h.limits.Bytes && h.budget.Fits(size+q.Extra(items))
}

// Drained reports whether a queue is short enough for more from the log: who is catching up costs
// an eighth of the queue at most, and while its socket is stalled nothing.
func (h *Shared) Drained(q Queue, beside int) bool {
	s := q.s
	return !s.stalled && s.bytes+beside <= h.limits.Bytes/8 && int(s.messages) <= h.limits.Messages/8
}

// Extra is what so many items more take beside their bytes.
func (q *Queue) Extra(items int) int {
	s, size := q.s, 0
	if s.held == 0 {
		size = stateSize
	}
	if int(s.n)+items > max(len(s.items), len(s.own)) {
		size += 2 * (int(s.n) + items) * itemSize
	}
	return size
}

// rings keeps the rings that no queue uses, by size.
type rings [17][][]Item

// ringBytesKept bounds what is kept of each size.
const ringBytesKept = 8 << 20

func (r *rings) take(size int) []Item {
	class := bits.TrailingZeros(uint(size))
	if class < len(r) && len(r[class]) > 0 {
		last := len(r[class]) - 1
		buf := r[class][last]
		r[class] = r[class][:last]
		return buf
	}
	return make([]Item, size)
}

func (r *rings) give(buf []Item) {
	class := bits.TrailingZeros(uint(len(buf)))
	if len(buf) == 0 || class >= len(r) || len(r[class])*len(buf)*itemSize >= ringBytesKept {
		return
	}
	r[class] = append(r[class], buf)
}
