package hub

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// hole notes that from to to will not come, and moves on behind them. The client is told before the next Message of the topic, or
// after holeDelay.
func (h *Hub) hole(t *track, from, to uint64, why wirev1.Code) {
	h.stats.Drops.add(why, to-from+1)
	if t.holeTo > 0 && (t.holeCode != why || t.holeTo+1 != from) {
		h.nameHole(t)
	}
	more := h.trackmore(t)
	if t.holeTo == 0 {
		more.holeFrom, more.holeCode, more.holeDue = from, why, h.now+int64(holeDelay)
		h.wheel.Sooner(t.c.slot, t.holeDue)
	}
	more.holeTo, t.pos = to, to
	if t.cur != nil {
		t.cur.Settle(from, to)
		h.cursorChanged(t)
	}
}

// nameHole tells the client of the hole, if there is one.
func (h *Hub) nameHole(t *track) {
	if t.holeTo == 0 {
		return
	}
	frame := h.encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, h.progress(t, t.holeFrom, t.holeTo, t.holeCode))
	h.push(t.c, item{kind: itemGap, t: t, from: t.holeFrom, b: frame})
	h.noHole(t)
}

// noHole forgets the hole that the client was not told of.
func (h *Hub) noHole(t *track) {
	if t.holeTo != 0 {
		more := h.trackmore(t)
		more.holeFrom, more.holeTo, more.holeDue, more.holeCode = 0, 0, 0, 0
		h.trackless(t)
	}
}

// noLatest forgets the message that waits.
func (h *Hub) noLatest(t *track) {
	if t.latest != nil {
		h.trackmore(t).latest = nil
		h.trackless(t)
	}
}

func (h *Hub) progress(t *track, from, to uint64, why wirev1.Code) *wirev1.Progress {
	p := &wirev1.Progress{Topic: t.topic.name, Epoch: t.epoch, From: from, To: to, Code: why}
	if t.kind != kindPlain {
		p.Subs = t.ids(nil)
	}
	return p
}

// expired skips a message whose time is over.
func (h *Hub) expired(t *track, m *exchange.Message) {
	if t.cur != nil {
		h.giveUp(t, m, t.cur.Attempts(m.Seq), wirev1.Code_CODE_EXPIRED)
	}
	h.hole(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED)
}

// conflate keeps the newest message alone: it goes out once nothing of the track is queued and a window is open.
func (h *Hub) conflate(t *track, m *exchange.Message) {
	h.skipLatest(t)
	h.trackmore(t).latest, t.pos = m, m.Seq
	h.tryLatest(t)
}

// skipLatest gives up the message that waits, because a newer one came.
func (h *Hub) skipLatest(t *track) {
	if m := t.latest; m != nil {
		h.noLatest(t)
		h.hole(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
	}
}

// tryLatest hands on the message that waits, if it may.
func (h *Hub) tryLatest(t *track) {
	m := t.latest
	if m == nil || t.queued > 0 || t.c.draining || t.c.state != stateOpen {
		return
	}
	if h.deliver(t, m) == wirev1.Code_CODE_OK {
		h.noLatest(t)
		return
	}
	h.waitFor(t)
}

// dropOldest makes room for m by turning the track's oldest queued messages into a named hole.
func (h *Hub) dropOldest(t *track, m *exchange.Message, why wirev1.Code) {
	c := t.c
	var gap *item
	for i := range c.out.n {
		it := c.out.at(i)
		if it.t != t || c.out.begun(i) {
			continue
		}
		if it.kind == itemGap {
			gap = nil
			if it.from > 0 && it.m == nil && it.attempt == dropped {
				gap = it
			}
			continue
		}
		h.stats.Drops.add(why, 1)
		h.dropInto(c, it, gap, why)
		if h.deliver(t, m) == wirev1.Code_CODE_OK {
			return
		}
		if it.kind == itemGap {
			gap = it
		}
	}
	h.hole(t, m.Seq, m.Seq, why)
}

// dropped marks, as the attempt of a gap, one that dropOldest made: it may grow.
const dropped = 1

// dropInto makes a queued message part of gap, or a gap of its own.
func (h *Hub) dropInto(c *conn, it, gap *item, why wirev1.Code) {
	t, seq := it.t, it.m.Seq
	h.account(c, it, -1)
	*it = item{}
	if gap == nil {
		gap = it
		*gap = item{kind: itemGap, t: t, from: seq, attempt: dropped}
	} else {
		h.account(c, gap, -1)
		c.out.dead++
	}
	gap.b = h.encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, h.progress(t, gap.from, seq, why))
	h.account(c, gap, 1)
}
