package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// expire notes when a message of the queue expires; 0: never.
func (o *outbox) expire(at uint64) {
	if at != 0 && (o.expires == 0 || at < o.expires) {
		o.expires = at
	}
}

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
	o, x, bytes := c.out, expiry{c: c, gap: noGap}, 0
	o.expires = 0
	for i := uint32(0); i < o.n; {
		if i >= gatherItems || bytes >= gatherBytes {
			o.expire(h.wall) // what is behind is looked at when its turn comes
			break
		}
		it := o.at(i)
		if it.kind == itemMessage && !o.begun(i) && h.firstExpired(c, i) && h.skip(&x, i) {
			continue
		}
		bytes += len(o.at(i).b)
		i++
	}
	if o.dead == o.n {
		h.compact(c)
	} else {
		h.tidy(c)
	}
	if c.waiting > 0 && h.drained(c) {
		h.waker.wake(c)
	}
}

// firstExpired reports whether the first message of the i-th item has expired. Where another of its
// run has, the first becomes an item of its own; where none has, it notes when one will.
func (h *Hub) firstExpired(c *conn, i uint32) bool {
	it := c.out.at(i)
	if h.hasExpired(it.m) {
		return true
	}
	for m, n := it.m, it.n; n > 0; m, n = m.Next, n-1 {
		if h.hasExpired(m) {
			h.split(c, i)
			c.out.expire(c.out.at(i).m.ExpiresAt)
			return false
		}
	}
	for m, n := it.m, it.n; n > 0; m, n = m.Next, n-1 {
		c.out.expire(m.ExpiresAt)
	}
	return false
}

// skip gives up the first message of the i-th item, which has expired; false where it has to go out
// all the same. The place is to be looked at again: what follows may stand there now.
func (h *Hub) skip(x *expiry, i uint32) bool {
	it := x.c.out.at(i)
	t, m := it.t, it.m
	switch {
	case m.Seq == 0:
		h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
		h.remove(x.c, i)
	case t == nil:
		return h.unassign(x.c, i)
	case m.Epoch != t.epoch:
		return false // its hole could not be named any more
	case it.again:
		return h.skipAgain(x.c, i)
	default:
		h.skipFirst(x, i)
	}
	if t != nil && t.latest != nil && t.queued == 0 {
		h.gaps.tryLatest(t)
		x.gap = noGap // it may have moved
	}
	return true
}

// remove takes the first message of the i-th item off the queue.
func (h *Hub) remove(c *conn, i uint32) {
	it := c.out.at(i)
	if it.n > 1 {
		h.trim(c, it)
		return
	}
	h.account(c, it, -1)
	*it = item{}
	c.out.dead++
}

// unassign hands a group's message back to its dispatcher, which sees that it has expired.
func (h *Hub) unassign(c *conn, i uint32) bool {
	it := c.out.at(i)
	g := c.memberByID(it.sub)
	if g == nil || !g.Unassign(it.m) {
		return false
	}
	h.remove(c, i)
	h.groups.settled(g)
	return true
}

// skipAgain gives up a redelivery.
func (h *Hub) skipAgain(c *conn, i uint32) bool {
	it := c.out.at(i)
	t, m := it.t, it.m
	if t.win == nil {
		return false
	}
	e := t.win.find(m.Seq)
	if e == nil || e.m != m {
		return false
	}
	h.remove(c, i)
	e.queued = false // leaves looks for nothing in the queue
	h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
	h.sessions.giveUp(t, m, uint32(e.attempt), wirev1.Code_CODE_EXPIRED)
	h.control(c, wirev1.FrameType_FRAME_TYPE_PROGRESS, h.gaps.progress(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED))
	h.leaves(t, e)
	return true
}

// skipFirst turns a first delivery into a named hole.
func (h *Hub) skipFirst(x *expiry, i uint32) {
	it := x.c.out.at(i)
	t, m, attempts := it.t, it.m, uint32(it.attempt)
	if x.track != t || x.gap == noGap || m.Seq != x.to+1 {
		x.gap = noGap
	}
	h.stats.Drops.add(wirev1.Code_CODE_EXPIRED, 1)
	x.gap = h.gaps.dropInto(x.c, i, x.gap, wirev1.Code_CODE_EXPIRED)
	x.track, x.to = t, m.Seq
	h.unopened(t, m.Seq)
	if t.cur != nil {
		h.sessions.giveUp(t, m, attempts, wirev1.Code_CODE_EXPIRED)
	}
}
