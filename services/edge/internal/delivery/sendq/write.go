package sendq

import (
	"cmp"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Bounds of one write. An item takes at most three pieces, and a kernel takes 1,024.
const (
	GatherItems = 340
	GatherBytes = 512 << 10
)

// Gathering collects what the next write holds. The pieces are good until the queues are changed,
// but for other Gatherings.
type Gathering struct {
	Pieces [][]byte
	s      *state
	next   uint32
	bytes  int
	most   int // bytes, but for the last item
}

// Gather begins to append to dst what the next write should hold, about most bytes; 0: GatherBytes.
// The queue may be empty.
func (q *Queue) Gather(dst [][]byte, most int) Gathering {
	return Gathering{Pieces: dst, s: q.s, most: cmp.Or(most, GatherBytes)}
}

// Next goes on, up to the next item whose frame names subscriptions that only the caller knows: Add
// takes it. nil: that was all.
func (g *Gathering) Next() *Item {
	for most := min(g.s.n, GatherItems); g.next < most && g.bytes < g.most; {
		it := g.s.at(g.next)
		switch {
		case it.kind == Dead:
			g.next++
		case it.kind != Message || it.Plain():
			b := it.bytes
			if g.next == 0 {
				b = b[g.s.sent:]
			}
			g.Pieces, g.bytes, g.next = append(g.Pieces, b), g.bytes+len(b), g.next+1
		case it.NeedsIDs():
			return it
		default:
			g.Add(it, nil)
		}
	}
	return nil
}

// Add takes the item that Next has stopped at, with the ids of its subscriptions.
func (g *Gathering) Add(it *Item, ids []uint32) {
	h := g.s.shared
	if !h.gathering {
		h.gathering, h.scratch = true, h.scratch[:0]
	}
	head, tail := h.ends(it, ids)
	body := it.message.Frame[wire.HeaderSize:]
	g.Pieces = append(g.Pieces, head, body, tail)
	g.bytes += len(head) + len(body) + len(tail)
	g.next++
}

// ends makes the header and the tail of a message with fields of its own, in the scratch.
func (h *Shared) ends(it *Item, ids []uint32) (head, tail []byte) {
	at := len(h.scratch)
	h.scratch = append(h.scratch, 0, 0, 0, 0)
	score, isUnranked := it.Mark().of()
	own := [1]uint32{it.sub}
	if it.sub != 0 {
		ids = own[:]
	}
	h.scratch = wire.AppendTail(h.scratch, uint32(it.attempt), score, ids)
	if isUnranked {
		h.scratch = wire.AppendUnranked(h.scratch)
	}
	head, tail = h.scratch[at:at+wire.HeaderSize], h.scratch[at+wire.HeaderSize:]
	wire.PutHeader(head, len(it.message.Frame)-wire.HeaderSize+len(tail), wirev1.FrameType_FRAME_TYPE_MESSAGE)
	return head, tail
}

// EndGathering says that what the Gatherings gave has been written, or will not be.
func (h *Shared) EndGathering() { h.gathering = false }

// First is the first item of the queue that is not dead, once what a write has sent is taken off;
// nil: there is none. The queue may be empty.
func (q *Queue) First() *Item {
	s := q.s
	if s.dead > 0 {
		q.dropDead()
		s = q.s
	}
	if s.n == 0 {
		return nil
	}
	return &s.items[s.head]
}

// dropDead takes the dead items off with which the queue begins.
func (q *Queue) dropDead() {
	for q.s.n > 0 && q.s.at(0).kind == Dead {
		q.s.dead--
		q.pop()
	}
}

// TakeSent takes the first item off into sent, or the first message of a run, if n bytes that were
// sent are all of it, and n by so much down. ids are as for Add.
func (q *Queue) TakeSent(n *int, ids []uint32, sent *Item) (ok bool) {
	s := q.s
	it := &s.items[s.head]
	size := len(it.bytes) - int(s.sent)
	if it.kind == Message && !it.Plain() {
		size = s.sizeWithEnds(it, ids)
	}
	switch {
	case *n >= size:
		*n -= size
		*sent = *it
		s.account(sent, -1)
		q.pop()
		return true
	case it.kind == Message && it.count > 1 && *n >= len(it.message.Frame):
		*n -= len(it.message.Frame)
		*sent = s.trim(it)
		return true
	}
	return false
}

// sizeWithEnds is how many bytes a message takes with fields of its own.
func (s *state) sizeWithEnds(it *Item, ids []uint32) int {
	s.shared.scratch = s.shared.scratch[:0]
	_, tail := s.shared.ends(it, ids)
	return len(it.message.Frame) + len(tail)
}

// BeginFirst notes that n bytes of the first item have left, and the rest has not. ids are as for
// Add.
func (q *Queue) BeginFirst(n int, ids []uint32) {
	s := q.s
	if s.at(0).count > 1 {
		q.Split(0)
	}
	it := s.at(0)
	if it.kind != Message || it.Plain() {
		s.sent += uint32(n)
		return
	}
	// What differs between subscribers may change until the rest is sent; these bytes must not.
	s.shared.scratch = s.shared.scratch[:0]
	head, tail := s.shared.ends(it, ids)
	whole := make([]byte, 0, len(it.message.Frame)+len(tail))
	whole = append(append(append(whole, head...), it.message.Frame[wire.HeaderSize:]...), tail...)
	s.account(it, -1)
	it.kind, it.bytes = Rest, whole[n:]
	s.account(it, 1)
}
