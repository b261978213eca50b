package delivery

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
)

const (
	// maxAnswers is how many bytes of answers may be queued before reading waits.
	maxAnswers = 128 << 10
	// closeTimeout is how long a closing connection has for its last bytes.
	closeTimeout = 2 * time.Second
)

// push queues an item for a connection.
func (h *Hub) push(c *state.Conn, it *sendq.Item) {
	c.Out.Push(h.queues, c.Slot, it)
	if c.Out.IsStalled() {
		h.warnSlow(c)
	}
	if !c.Dirty {
		h.conns.MarkDirty(c)
	}
}

// pushRuns queues runs of the messages in hand, which are sent as they are shared.
func (f *fanout) pushRuns(c *state.Conn, s *sendq.Stream, runs []sendq.Run) {
	for i := range runs {
		it := runs[i].Item(s)
		f.hub.push(c, &it)
	}
	c.Out.ExpiresBy(f.expires)
}

// control queues a frame of the edge's own.
func (h *Hub) control(c *state.Conn, t wirev1.FrameType, m proto.Message) {
	it := sendq.AnswerOf(h.queues.Encode(t, m))
	h.push(c, &it)
}

// full reports whether a message of so many bytes must wait, and why. An empty queue takes any, if
// the budget allows.
func (h *Hub) full(c *state.Conn, size int) wirev1.Code {
	switch {
	case h.queues.Full(c.Out, size, int(c.Outside)):
		return wirev1.Code_CODE_QUEUE_FULL
	case !h.fitsBudget(c, size+c.Out.Extra(1)):
		return wirev1.Code_CODE_MEMORY_BUDGET
	}
	return wirev1.Code_CODE_OK
}

// fits reports whether the messages in hand may be queued together; where not, full says of each
// alone.
func (f *fanout) fits(c *state.Conn) bool {
	return f.hub.queues.Fits(c.Out, len(f.ms), len(f.runs), f.bytes, int(c.Outside))
}

// drained reports whether the queue is short enough for more from the log.
func (h *Hub) drained(c *state.Conn) bool { return h.queues.Drained(c.Out, int(c.Outside)) }

// wakeDrained has those go on that wait for room in the queue, where there is some.
func (h *Hub) wakeDrained(c *state.Conn) {
	if c.Waiting > 0 && h.drained(c) {
		h.waker.Wake(c)
	}
}

// Deep takes the slots whose queue has grown long since it was asked last.
func (h *Hub) Deep(dst []uint32) []uint32 { return h.queues.Deep(dst) }

// Gather appends to dst what the next write of the connection should hold. The pieces are good
// until the hub is used again, but to Gather for other connections. There are none where all that
// was queued has expired, or was dropped: the queue is empty then, else its loop would try again
// and again. most is how many bytes they are, but for the last item; 0: as many as one write takes.
func (h *Hub) Gather(slot uint32, dst [][]byte, most int) [][]byte {
	c := h.conns.Get(slot)
	if c.Out.MayHaveExpired() {
		h.sending = true
		h.skipExpired(c)
		h.sending = false
	}
	g := c.Out.Gather(dst, most)
	for it := g.Next(); it != nil; it = g.Next() {
		g.Add(it, h.idsOf(it))
	}
	if len(g.Pieces) == len(dst) {
		c.Out.Compact()
	}
	return g.Pieces
}

// idsOf are the ids of the subscriptions that an item names which does not have them.
func (h *Hub) idsOf(it *sendq.Item) []uint32 {
	if !it.NeedsIDs() {
		return nil
	}
	h.ids = state.TrackOf(it.Stream()).Wanting(h.ids[:0], it.Message())
	return h.ids
}

// Wrote says that the first n bytes of what Gather gave for the connection have left for the
// kernel.
func (h *Hub) Wrote(slot uint32, n int) {
	c := h.conns.Get(slot)
	held := c.Holds(maxAnswers)
	h.queues.EndGathering()
	h.sending = true
	var sent sendq.Item
	for it := c.Out.First(); it != nil; it = c.Out.First() {
		if c.Out.TakeSent(&n, h.idsOf(it), &sent) {
			h.onSent(c, &sent)
			continue
		}
		if n > 0 {
			c.Out.BeginFirst(n, h.idsOf(it))
		}
		break
	}
	h.wakeDrained(c)
	h.sending = false
	if c.Claims != nil {
		h.rooms.claims.Flush(c.Claims)
	}
	if h.rooms.members.Behind() {
		h.rooms.members.Wrote(h.handle(c))
	}
	if held && !c.Holds(maxAnswers) {
		h.conns.Resumed = append(h.conns.Resumed, c.Slot)
	}
}

// onSent is told of each item once all its bytes have left for the kernel.
func (h *Hub) onSent(c *state.Conn, it *sendq.Item) {
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
	t := state.TrackOf(s)
	if !t.Follows() {
		return
	}
	for n := it.Count(); m != nil && n > 0; m, n = m.Next, n-1 {
		h.windows.onSent(c, t, m)
	}
}
