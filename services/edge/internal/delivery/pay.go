package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// All queues of an edge share one budget. When it is used up, who owes most pays first, and keeps
// half of what it owed: its ephemeral messages go, the oldest first; then its durable ones, the
// newest first, which it reads from the log later; of subscriptions with DROP_OLDEST the oldest. A
// subscription with DISCONNECT costs it the connection, and so does a debt that none of that
// lowers: answers it does not read, or what the kernel holds for it. So a client within its share
// pays for nobody.

const (
	// payersAtOnce is how many connections pay for one message at most, and how many in a turn.
	payersAtOnce = 4
)

// charge counts n bytes more for a connection; below 0: less.
func (h *Hub) charge(o *outbox, n int) {
	o.held += n
	h.budget.Charge(n)
	if o.class != 0 || o.held >= leastDebt {
		h.debts.rank(o)
	}
}

// afford makes sure that messages of so many bytes may be queued for c: where the budget is used
// up, those pay who owe more. False where nobody does, or while sends are under way, whose bytes
// must stay.
func (h *Hub) afford(c *conn, size int) bool {
	if h.budget.Fits(size) {
		return true
	}
	for n := 0; n < payersAtOnce && !h.sending; n++ {
		o := h.debts.most()
		if o == nil || o.class <= h.debts.class(c.out.held+size) {
			return false
		}
		if h.pay(o.owner); h.budget.Fits(size) {
			return true
		}
	}
	return false
}

// Relieve has those pay who owe most, where more is there than may be, or where another loop needs
// what one beyond its fair share has.
func (h *Hub) Relieve() {
	h.lagging.look()
	fair, others := h.budget.Settle(h.outboxes.Taken())
	for range payersAtOnce {
		o := h.debts.most()
		if o == nil || !h.budget.Over() && (!others || int64(o.held) <= fair) {
			break
		}
		h.pay(o.owner)
	}
}

// pay takes from a connection half of what it owes.
func (h *Hub) pay(c *conn) {
	if h.paying != nil {
		h.paying(c)
	}
	h.stats.Payments++
	owed := c.out.held
	if c.state != stateOpen {
		h.cut(c, wirev1.Code_CODE_MEMORY_BUDGET, "")
		return
	}
	h.payEphemeral(c, owed/2)
	h.payDurable(c, owed/2)
	if c.state == stateOpen {
		h.payOldest(c, owed/2)
		h.looked(3 * int(c.out.n))
		h.compact(c)
		h.shrink(c.out)
	}
	if c.out.held > owed-owed/8 {
		h.cut(c, wirev1.Code_CODE_MEMORY_BUDGET, "the edge has no memory for what is not read")
	}
	if c.waiting > 0 && h.drained(c) { // nothing may be left whose leaving would
		h.waker.wake(c)
	}
}

// payEphemeral drops messages that no log has, the oldest first.
func (h *Hub) payEphemeral(c *conn, goal int) {
	o := c.out
	for i := uint32(0); i < o.n && o.held > goal; i++ {
		if it := o.at(i); it.kind == itemMessage && it.m.Seq == 0 && !o.begun(i) {
			h.stats.Drops.add(wirev1.Code_CODE_MEMORY_BUDGET, uint64(it.n))
			h.account(c, it, -1)
			*it = item{}
			o.dead++
		}
	}
}

// payDurable drops what can be had again, the newest first: from the log, from the window once
// more, or by another member of the group.
func (h *Hub) payDurable(c *conn, goal int) {
	o := c.out
	var fenced []*track // what stands before a change of epoch can't be read again
	for i := o.n; i > 0 && o.held > goal; i-- {
		it := o.at(i - 1)
		if it.kind != itemMessage && it.kind != itemGap || o.begun(i-1) || it.m != nil && it.m.Seq == 0 {
			continue
		}
		switch t := it.t; {
		case t == nil:
			h.looked(looksAsOne)
			h.unassign(c, i-1)
		case it.kind == itemGap && it.from == 0:
			fenced = append(fenced, t)
		case it.kind == itemGap && t.rank != nil: // it says nothing of where the track is
		case t.told || slices.Contains(fenced, t):
		case it.again:
			h.postpone(c, i-1)
		case t.overflow == overflowDisconnect:
			h.fail(c, wirev1.Code_CODE_SLOW_CONSUMER, "the edge has no memory for the subscription's queue")
			return
		case t.overflow != overflowDropOldest:
			h.retreat(c, it)
		}
	}
}

// retreat takes an item of a track back, which reads it from the log later. Of what follows it in
// the track nothing may be left in the queue.
func (h *Hub) retreat(c *conn, it *item) {
	t := it.t
	h.stepBack(t, it)
	h.gaps.forgetLatest(t)
	h.account(c, it, -1)
	*it = item{}
	c.out.dead++
	if !t.behind {
		h.fallBehind(t)
		return
	}
	h.replay.releaseRange(t) // it begins too late
	h.replay.enqueue(t)
}

// postponed is when a redelivery is tried again that found no room.
const postponed = Tick * 10

// postpone takes a queued redelivery back.
func (h *Hub) postpone(c *conn, i uint32) {
	it := c.out.at(i)
	t := it.t
	if t.win == nil {
		return
	}
	e := t.win.find(it.m.Seq)
	if e == nil || e.m != it.m || !e.queued {
		return
	}
	h.remove(c, i)
	e.queued, e.attempt = false, e.attempt-min(e.attempt, 1)
	h.wait(t, e)
}

// wait has a message of the window looked at again a little later.
func (h *Hub) wait(t *track, e *entry) {
	e.due = h.now + int64(postponed)
	h.wheel.Sooner(t.c.slot, e.due)
}

// payOldest turns messages of subscriptions with DROP_OLDEST into named holes, the oldest first.
func (h *Hub) payOldest(c *conn, goal int) {
	o, gap, to := c.out, noGap, uint64(0)
	for i := uint32(0); i < o.n && o.held > goal; i++ {
		it := o.at(i)
		t := it.t
		if it.kind != itemMessage || t == nil || t.told || it.m.Seq == 0 || o.begun(i) || t.overflow != overflowDropOldest {
			continue
		}
		from, n := it.m.Seq, uint64(it.n)
		h.stats.Drops.add(wirev1.Code_CODE_MEMORY_BUDGET, n)
		h.looked(looksAsOne)
		h.account(c, it, -1)
		if gap != noGap && o.at(gap).t == t && to+1 == from {
			*it = item{}
			o.dead++
		} else {
			*it = item{kind: itemGap, t: t, from: from, rank: it.rank, attempt: uint16(wirev1.Code_CODE_MEMORY_BUDGET)}
			gap = i
		}
		to = from + n - 1
		g := o.at(gap)
		h.account(c, g, -1)
		g.b = h.encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, h.gaps.progress(t, g.from, to, wirev1.Code_CODE_MEMORY_BUDGET))
		h.account(c, g, 1)
	}
}

// cut ends a connection without its last words: what is owed to it is let go at once, and its
// socket is reset.
func (h *Hub) cut(c *conn, why wirev1.Code, text string) {
	h.close(c, why, text)
	h.looked(int(c.out.n))
	h.freeQueue(c, int(c.out.n))
	h.unstick(c)
	c.deadline = h.now // it has had its time
	h.markDirty(c)
}

// shrink gives a ring back that is far too large.
func (h *Hub) shrink(o *outbox) {
	size := max(2*len(o.room), len(o.buf)/4)
	if o == noOutbox || len(o.buf) <= size || int(o.n) > size/2 {
		return
	}
	for size/4 > int(o.n) && size > 2*len(o.room) {
		size /= 2
	}
	h.move(o, size)
}
