package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

func (h *Hub) hasExpired(m *exchange.Message) bool { return m.ExpiresAt != 0 && m.ExpiresAt <= h.wall }

// expiry is a walk over what a connection's next write would hold, for messages that expired in the
// queue. The last gap it made may grow.
type expiry struct {
	c     *conn
	gap   uint32
	track *track // of the gap
	to    uint64 // its last seq
}

// skipExpired takes what has expired out of what the next write would hold. Nothing in here tidies
// the queue, whose places are counted, but the end.
func (h *Hub) skipExpired(c *conn) {
	if c.state != stateOpen {
		return
	}
	q, x, bytes := &c.out, expiry{c: c, gap: sendq.NoGap}, 0
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
	it := x.c.out.At(i)
	s, m := it.Stream(), it.Message()
	switch {
	case m.Seq == 0:
		h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
		x.c.out.DropFirst(i)
	case s == nil:
		return h.unassign(x.c, i)
	case m.Epoch != trackOf(s).epoch:
		return false // its gap could not be named any more
	case it.Again():
		return h.skipAgain(x.c, i)
	default:
		h.skipFirst(x, i)
	}
	if s == nil {
		return true
	}
	if t := trackOf(s); t.latest != nil && t.Queued() == 0 {
		h.gaps.tryLatest(t)
		x.gap = sendq.NoGap // it may have moved
	}
	return true
}

// unassign hands a group's message back to its dispatcher, which sees that it has expired.
func (h *Hub) unassign(c *conn, i uint32) bool {
	it := c.out.At(i)
	m, g := it.Message(), c.memberByID(it.Subscription())
	if g == nil || !g.Unassign(m) {
		return false
	}
	c.out.DropFirst(i)
	h.groups.settled(g)
	return true
}

// skipAgain gives up a redelivery.
func (h *Hub) skipAgain(c *conn, i uint32) bool {
	it := c.out.At(i)
	t, m := trackOf(it.Stream()), it.Message()
	if t.win == nil {
		return false
	}
	e := t.win.Find(m.Seq)
	if e == nil || e.Message != m {
		return false
	}
	c.out.DropFirst(i)
	e.Queued = false // leaves looks for nothing in the queue
	h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
	h.sessions.giveUp(t, m, uint32(e.Attempt), wirev1.Code_CODE_EXPIRED)
	h.control(c, wirev1.FrameType_FRAME_TYPE_PROGRESS, h.gaps.progress(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED))
	h.windows.leaves(t, e)
	return true
}

// skipFirst turns a first delivery into a gap.
func (h *Hub) skipFirst(x *expiry, i uint32) {
	it := x.c.out.At(i)
	t, m, attempts := trackOf(it.Stream()), it.Message(), uint32(it.Attempt())
	if x.track != t || x.gap == sendq.NoGap || m.Seq != x.to+1 {
		x.gap = sendq.NoGap
	}
	h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
	x.gap = h.gaps.dropInto(x.c, i, x.gap, wirev1.Code_CODE_EXPIRED)
	x.track, x.to = t, m.Seq
	h.windows.unopened(t, m.Seq)
	if t.cur != nil {
		h.sessions.giveUp(t, m, attempts, wirev1.Code_CODE_EXPIRED)
	}
}
