package delivery

import (
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
)

const (
	// maxAnswers is how many bytes of answers a connection's queue may hold before reading from it
	// waits.
	maxAnswers = 128 << 10
	// closeTimeout is how long a closing connection has for its last bytes.
	closeTimeout = 2 * time.Second
)

// trackOf finds the track that a stream is the first field of; nil: the stream is nil.
func trackOf(s *sendq.Stream) *track {
	return (*track)(unsafe.Pointer(s))
}

var _ [0]struct{} = [unsafe.Offsetof(track{}.Stream)]struct{}{}

// push queues an item for a connection.
func (h *Hub) push(c *conn, it *sendq.Item) {
	c.out.Push(h.queues, c.slot, it)
	if c.out.IsStalled() {
		h.warnSlow(c)
	}
	if !c.dirty {
		h.conns.markDirty(c)
	}
}

// pushRuns queues runs of the messages in hand, which are sent as they are shared.
func (f *fanout) pushRuns(c *conn, s *sendq.Stream, runs []sendq.Run) {
	for i := range runs {
		it := runs[i].Item(s)
		f.hub.push(c, &it)
	}
	c.out.ExpiresBy(f.expires)
}

// control queues a frame of the edge's own.
func (h *Hub) control(c *conn, t wirev1.FrameType, m proto.Message) {
	it := sendq.AnswerOf(h.queues.Encode(t, m))
	h.push(c, &it)
}

// full reports whether a message of so many bytes must wait, and why. An empty queue takes any, if
// the budget allows.
func (h *Hub) full(c *conn, size int) wirev1.Code {
	switch {
	case h.queues.Full(c.out, size, int(c.sealed)):
		return wirev1.Code_CODE_QUEUE_FULL
	case !h.fitsBudget(c, size+c.out.Extra(1)):
		return wirev1.Code_CODE_MEMORY_BUDGET
	}
	return wirev1.Code_CODE_OK
}

// fits reports whether the messages in hand may be queued together; where not, full says of each
// alone.
func (f *fanout) fits(c *conn) bool {
	return f.hub.queues.Fits(c.out, len(f.ms), len(f.runs), f.bytes, int(c.sealed))
}

// drained reports whether the queue is short enough for more from the log.
func (h *Hub) drained(c *conn) bool { return h.queues.Drained(c.out, int(c.sealed)) }

// wakeDrained has those go on that wait for room in the queue, where there is some.
func (h *Hub) wakeDrained(c *conn) {
	if c.waiting > 0 && h.drained(c) {
		h.waker.wake(c)
	}
}

// Deep takes the slots whose queue has grown long since it was asked last.
func (h *Hub) Deep(dst []uint32) []uint32 { return h.queues.Deep(dst) }

// Gather appends to dst what the next write of the connection should hold. The pieces are good
// until the hub is used again, but to Gather for other connections. There are none where all that
// was queued has expired.
func (h *Hub) Gather(slot uint32, dst [][]byte) [][]byte {
	c := h.conns.get(slot)
	if c.out.MayHaveExpired() {
		h.sending = true
		h.skipExpired(c)
		h.sending = false
	}
	g := c.out.Gather(dst)
	for it := g.Next(); it != nil; it = g.Next() {
		g.Add(it, h.idsOf(it))
	}
	return g.Pieces
}

// idsOf are the ids of the subscriptions that an item names which does not have them.
func (h *Hub) idsOf(it *sendq.Item) []uint32 {
	if !it.NeedsIDs() {
		return nil
	}
	h.ids = trackOf(it.Stream()).wanting(h.ids[:0], it.Message())
	return h.ids
}

// Wrote says that the first n bytes of what Gather gave for the connection have left for the
// kernel.
func (h *Hub) Wrote(slot uint32, n int) {
	c := h.conns.get(slot)
	held := h.holds(c)
	h.queues.EndGathering()
	h.sending = true
	var sent sendq.Item
	for it := c.out.First(); it != nil; it = c.out.First() {
		if c.out.TakeSent(&n, h.idsOf(it), &sent) {
			h.onSent(c, &sent)
			continue
		}
		if n > 0 {
			c.out.BeginFirst(n, h.idsOf(it))
		}
		break
	}
	h.wakeDrained(c)
	h.sending = false
	if c.claims != nil {
		h.rooms.claims.Flush(c.claims)
	}
	if held && !h.holds(c) {
		h.conns.resumed = append(h.conns.resumed, c.slot)
	}
}

// onSent is told of each item once all its bytes have left for the kernel.
func (h *Hub) onSent(c *conn, it *sendq.Item) {
	if it.Kind() != sendq.Message && it.Kind() != sendq.Rest {
		return
	}
	h.stats.Deliveries += uint64(it.Count())
	if it.Again() {
		h.stats.Redeliveries++
	}
	s, m := it.Stream(), it.Message()
	if s == nil {
		if it.Subscription() != 0 && m.Seq > 0 {
			h.groups.onSent(c, it.Subscription(), m)
		}
		return
	}
	t := trackOf(s)
	if !t.follows() {
		return
	}
	for n := it.Count(); m != nil && n > 0; m, n = m.Next, n-1 {
		h.windows.onSent(c, t, m)
	}
}
