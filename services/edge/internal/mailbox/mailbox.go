// Package mailbox carries events from any goroutine to one event loop. Putting never blocks and
// takes no lock; what is at the bound is refused.
package mailbox

import (
	"sync/atomic"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Bounds of a mailbox. Batches of messages are bounded on their own, so that other events always
// have room: those are answers to what the loop asked for, or rare.
type Bounds struct {
	Batches int64 // exchange.Live events
	Bytes   int64 // bytes of their frames
	Others  int64
}

// Box is a many-to-one queue. Every goroutine may Put; one goroutine takes.
type Box struct {
	bounds  Bounds
	wake    func()
	head    atomic.Pointer[node]
	batches atomic.Int64
	bytes   atomic.Int64
	refused atomic.Uint64
}

type node struct {
	event exchange.Event
	next  *node
	// events other than batches, from here on: counted with the same atomic operation that puts
	others int64
}

// New makes a box. wake is called, by the goroutine that puts, when the box was empty.
func New(b Bounds, wake func()) *Box { return &Box{bounds: b, wake: wake} }

// Put adds e; false where its kind is at the bound.
func (b *Box) Put(e exchange.Event) bool {
	other := int64(1)
	if live, ok := e.(exchange.Live); ok {
		if other = 0; !b.admit(live) {
			b.refused.Add(1)
			return false
		}
	}
	n := &node{event: e}
	for {
		n.next, n.others = b.head.Load(), other
		if n.next != nil {
			n.others += n.next.others
		}
		if other > 0 && n.others > b.bounds.Others {
			b.refused.Add(1)
			return false
		}
		if b.head.CompareAndSwap(n.next, n) {
			break
		}
	}
	if n.next == nil {
		b.wake()
	}
	return true
}

func (b *Box) admit(live exchange.Live) bool {
	if b.batches.Add(1) > b.bounds.Batches {
		b.batches.Add(-1)
		return false
	}
	// The sum may pass the bound by one batch, so that a batch of any size gets through an empty
	// box.
	if size := Size(live); b.bytes.Add(size)-size >= b.bounds.Bytes {
		b.bytes.Add(-size)
		b.batches.Add(-1)
		return false
	}
	return true
}

// Size of a batch as the bound counts it.
func Size(live exchange.Live) int64 {
	n := int64(0)
	for _, m := range live.Messages {
		n += int64(len(m.Frame))
	}
	return n
}

// Done gives the room of a batch back, once it was fanned out; the loop calls it.
func (b *Box) Done(live exchange.Live) {
	b.batches.Add(-1)
	b.bytes.Add(-Size(live))
}

// Take appends everything that was put to dst, the oldest first. Events other than batches give
// their room back at once.
func (b *Box) Take(dst []exchange.Event) []exchange.Event {
	at := len(dst)
	for n := b.head.Swap(nil); n != nil; n = n.next {
		dst = append(dst, n.event)
	}
	for i, j := at, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// Empty reports whether nothing waits to be taken.
func (b *Box) Empty() bool { return b.head.Load() == nil }

// Refused counts what Put refused.
func (b *Box) Refused() uint64 { return b.refused.Load() }
