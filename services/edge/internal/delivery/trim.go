package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// All send queues of an edge share one budget. When it is used up, the largest queue is trimmed to
// half of its size: its ephemeral messages go, the oldest first; then its durable ones, the newest
// first, which the subscription reads from the log later; of subscriptions with DROP_OLDEST the
// oldest. A subscription with DISCONNECT costs the connection, and so does a queue that none of
// that makes smaller: answers that are not read, what was begun, or what the kernel holds. So a
// client within its share loses nothing to others.

// trimmedAtOnce is how many queues are trimmed for one message at most, and how many in a turn.
const trimmedAtOnce = 4

// fitsBudget makes sure that messages of so many bytes may be queued for c: where the budget is
// used up, larger queues are trimmed. False where there is none, or while sends are under way,
// whose bytes must stay.
func (h *Hub) fitsBudget(c *state.Conn, size int) bool {
	b := h.queues.Budget()
	if b.Fits(size) {
		return true
	}
	for n := 0; n < trimmedAtOnce && !h.sending; n++ {
		slot, ok := h.queues.LargerThan(c.Out.Held() + size)
		if !ok {
			return false
		}
		if h.trim(h.conns.Get(slot)); b.Fits(size) {
			return true
		}
	}
	return false
}

// Relieve trims the largest queues, where more is queued than may be, or where another loop needs
// what one beyond its fair share has.
func (h *Hub) Relieve() {
	if h.lagging.Look(h.now) {
		h.rooms.report.ForgetSlow(h.now)
	}
	b := h.queues.Budget()
	fair, others := b.Settle(h.queues.InUse())
	for range trimmedAtOnce {
		slot, held, ok := h.queues.Largest()
		if !ok || !b.Over() && (!others || int64(held) <= fair) {
			break
		}
		h.trim(h.conns.Get(slot))
	}
}

// trim takes half of its size off a queue.
func (h *Hub) trim(c *state.Conn) {
	if h.trimming != nil {
		h.trimming(c)
	}
	h.stats.Trims++
	held := c.Out.Held()
	if c.Phase != state.Open {
		h.cut(c, wirev1.Code_CODE_MEMORY_BUDGET, "")
		return
	}
	h.stats.Drops.Add(wirev1.Code_CODE_MEMORY_BUDGET, c.Out.DropEphemeral(held/2))
	h.trimDurable(c, held/2)
	if c.Phase == state.Open {
		h.trimOldest(c, held/2)
		h.addCost(3 * int(c.Out.Len()))
		c.Out.Compact()
		c.Out.Shrink()
	}
	if c.Out.Held() > held-held/8 {
		h.cut(c, wirev1.Code_CODE_MEMORY_BUDGET, "the edge has no memory for what is not read")
	}
	h.wakeDrained(c) // nothing may be left whose leaving would
}

// trimDurable drops what can be had again, the newest first: from the log, from the window once
// more, or by another member of the group.
func (h *Hub) trimDurable(c *state.Conn, goal int) {
	q := &c.Out
	var fenced []*state.Track // what stands before a change of epoch can't be read again
	for i := q.Len(); i > 0 && q.Held() > goal; i-- {
		it := q.At(i - 1)
		isGap := it.Kind() == sendq.Gap
		if it.Kind() != sendq.Message && !isGap || q.Begun(i-1) || !isGap && it.Message().Seq == 0 {
			continue
		}
		if it.Stream() == nil {
			h.addCost(itemsPerUnit)
			h.unassign(c, i-1)
			continue
		}
		switch t := state.TrackOf(it.Stream()); {
		case isGap && it.From() == 0:
			fenced = append(fenced, t)
		case isGap && t.Rank != nil: // it says nothing of where the track is
		case t.Told.Any() || slices.Contains(fenced, t):
		case it.Again():
			h.postpone(c, i-1)
		case t.Overflow == state.OverflowDisconnect:
			h.fail(c, wirev1.Code_CODE_SLOW_CONSUMER, "the edge has no memory for the subscription's queue")
			return
		case t.Overflow != state.OverflowDropOldest:
			h.retreat(c, i-1)
		}
	}
}

// retreat takes the i-th item, of a track, back, which reads it from the log later. Of what follows
// it in the track nothing may be left in the queue.
func (h *Hub) retreat(c *state.Conn, i uint32) {
	it := c.Out.At(i)
	t := state.TrackOf(it.Stream())
	h.stepBack(t, it)
	h.gaps.forgetLatest(t)
	c.Out.Drop(i)
	if !t.Behind {
		h.fallBehind(t)
		return
	}
	h.replay.releaseRange(t) // it begins too late
	h.replay.enqueue(t)
}

// postponed is when a redelivery is tried again that found no room.
const postponed = Tick * 10

// postpone takes a queued redelivery back.
func (h *Hub) postpone(c *state.Conn, i uint32) {
	it := c.Out.At(i)
	t, m := state.TrackOf(it.Stream()), it.Message()
	if t.Win == nil {
		return
	}
	e := t.Win.Find(m.Seq)
	if e == nil || e.Message != m || !e.Queued {
		return
	}
	c.Out.DropFirst(i)
	e.TakeBack()
	h.wait(t, e)
}

// wait has a message of the window looked at again a little later.
func (h *Hub) wait(t *state.Track, e *unacked.Entry) {
	e.Due = h.now + int64(postponed)
	h.wheel.Sooner(t.Conn.Slot, e.Due)
}

// trimOldest turns messages of subscriptions with DROP_OLDEST into gaps, the oldest first.
func (h *Hub) trimOldest(c *state.Conn, goal int) {
	q, gap, to := &c.Out, sendq.NoGap, uint64(0)
	for i := uint32(0); i < q.Len() && q.Held() > goal; i++ {
		it := q.At(i)
		if it.Kind() != sendq.Message || it.Stream() == nil || it.Message().Seq == 0 || q.Begun(i) {
			continue
		}
		t := state.TrackOf(it.Stream())
		if t.Told.Any() || t.Overflow != state.OverflowDropOldest {
			continue
		}
		from, n := it.Message().Seq, uint64(it.Count())
		h.stats.Drops.Add(wirev1.Code_CODE_MEMORY_BUDGET, n)
		h.addCost(itemsPerUnit)
		begin := from
		if gap != sendq.NoGap && q.At(gap).Stream() == &t.Stream && to+1 == from {
			begin = q.At(gap).From()
		} else {
			gap = sendq.NoGap
		}
		to = from + n - 1
		gap = q.DropInto(i, gap, h.gaps.progressFrame(t, begin, to, wirev1.Code_CODE_MEMORY_BUDGET), wirev1.Code_CODE_MEMORY_BUDGET)
	}
}

// cut ends a connection without its last words: what is queued for it is let go at once, and its
// socket is reset.
func (h *Hub) cut(c *state.Conn, why wirev1.Code, text string) {
	h.close(c, why, text)
	h.addCost(int(c.Out.Len()))
	c.Out.LetGo()
	c.Deadline = h.now // it has had its time
	h.conns.MarkDirty(c)
}

func (h *Hub) hasExpired(m *exchange.Message) bool { return m.ExpiresAt != 0 && m.ExpiresAt <= h.wall }

// expiry is a walk over what a connection's next write would hold, for messages that expired in the
// queue. The last gap it made may grow.
type expiry struct {
	c     *state.Conn
	gap   uint32
	track *state.Track // of the gap
	to    uint64       // its last seq
}

// skipExpired takes what has expired out of what the next write would hold. Nothing in here tidies
// the queue, whose places are counted, but the end.
func (h *Hub) skipExpired(c *state.Conn) {
	if c.Phase != state.Open {
		return
	}
	q, x, bytes := &c.Out, expiry{c: c, gap: sendq.NoGap}, 0
	q.ForgetExpiry()
	for i := uint32(0); i < q.Len(); {
		if i >= sendq.GatherItems || bytes >= sendq.GatherBytes {
			q.ExpiresBy(h.wall) // what is behind is looked at when its turn comes
			break
		}
		if q.At(i).Kind() == sendq.Message && !q.Begun(i) && q.FirstExpired(i) && h.skip(&x, i) {
			continue
		}
		bytes += len(q.At(i).Bytes())
		i++
	}
	if q.Dead() == q.Len() {
		q.Compact()
	} else {
		q.Tidy()
	}
	h.wakeDrained(c)
}

// skip gives up the first message of the i-th item, which has expired; false where it has to go out
// all the same. The place is to be looked at again: what follows may stand there now.
func (h *Hub) skip(x *expiry, i uint32) bool {
	it := x.c.Out.At(i)
	s, m := it.Stream(), it.Message()
	switch {
	case m.Seq == 0:
		h.stats.Drops.Add(wirev1.Code_CODE_EXPIRED, 1)
		x.c.Out.DropFirst(i)
	case s == nil:
		return h.unassign(x.c, i)
	case m.Epoch != state.TrackOf(s).Epoch:
		return false // its gap could not be named any more
	case it.Again():
		return h.skipAgain(x.c, i)
	default:
		h.skipFirst(x, i)
	}
	if s == nil {
		return true
	}
	if t := state.TrackOf(s); t.Latest != nil && t.Queued() == 0 {
		h.gaps.tryLatest(t)
		x.gap = sendq.NoGap // it may have moved
	}
	return true
}

// unassign hands a group's message back to its dispatcher, which sees that it has expired.
func (h *Hub) unassign(c *state.Conn, i uint32) bool {
	it := c.Out.At(i)
	m, g := it.Message(), c.MemberByID(it.Subscription())
	if g == nil || !g.Unassign(m) {
		return false
	}
	c.Out.DropFirst(i)
	h.groups.settled(g)
	return true
}

// skipAgain gives up a redelivery.
func (h *Hub) skipAgain(c *state.Conn, i uint32) bool {
	it := c.Out.At(i)
	t, m := state.TrackOf(it.Stream()), it.Message()
	if t.Win == nil {
		return false
	}
	e := t.Win.Find(m.Seq)
	if e == nil || e.Message != m {
		return false
	}
	c.Out.DropFirst(i)
	e.Queued = false // remove looks for nothing in the queue
	h.stats.Drops.Add(wirev1.Code_CODE_EXPIRED, 1)
	h.sessions.giveUp(t, m, uint32(e.Attempt), wirev1.Code_CODE_EXPIRED)
	h.control(c, wirev1.FrameType_FRAME_TYPE_PROGRESS, h.gaps.progress(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED))
	h.windows.remove(t, e)
	return true
}

// skipFirst turns a first delivery into a gap.
func (h *Hub) skipFirst(x *expiry, i uint32) {
	it := x.c.Out.At(i)
	t, m, attempts := state.TrackOf(it.Stream()), it.Message(), uint32(it.Attempt())
	if x.track != t || x.gap == sendq.NoGap || m.Seq != x.to+1 {
		x.gap = sendq.NoGap
	}
	h.stats.Drops.Add(wirev1.Code_CODE_EXPIRED, 1)
	x.gap = h.gaps.dropInto(x.c, i, x.gap, wirev1.Code_CODE_EXPIRED)
	x.track, x.to = t, m.Seq
	h.windows.takeBack(t, m.Seq)
	if t.Cursor != nil {
		h.sessions.giveUp(t, m, attempts, wirev1.Code_CODE_EXPIRED)
	}
}
