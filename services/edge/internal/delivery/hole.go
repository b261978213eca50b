package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// hole notes that from to to will not come, and moves on behind them. The client is told before the
// next Message of the topic, or after holeDelay.
func (h *Hub) hole(t *track, from, to uint64, why wirev1.Code) {
	h.stats.Drops.add(why, to-from+1)
	if t.holeTo > 0 && (t.holeCode != why || t.holeTo+1 != from) {
		h.nameHole(t, 0)
	}
	more := h.trackmore(t)
	if t.holeTo == 0 {
		more.holeFrom, more.holeCode, more.holeDue = from, why, h.now+int64(holeDelay)
		h.wheel.Sooner(t.c.slot, t.holeDue)
	}
	more.holeTo, t.pos = to, max(t.pos, to)
	if t.cur != nil {
		t.cur.Settle(from, to)
		h.cursorChanged(t)
	}
}

// nameHole tells the client of the hole, if there is one, as urgently as the message behind it.
func (h *Hub) nameHole(t *track, priority uint8) {
	if t.holeTo == 0 {
		return
	}
	h.nameEpoch(t, priority)
	it := sendq.GapOf(&t.Stream, t.holeFrom, h.gapFrame(t, t.holeFrom, t.holeTo, t.holeCode), priority)
	h.push(t.c, &it)
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

// progress is good until it is asked for again.
func (h *Hub) progress(t *track, from, to uint64, why wirev1.Code) *wirev1.Progress {
	p := &h.hollow
	p.Topic, p.Epoch, p.From, p.To, p.Code, p.Subs = t.topic.name, t.epoch, from, to, why, p.Subs[:0]
	if t.kind != kindPlain {
		p.Subs = t.ids(p.Subs)
	}
	return p
}

// gapFrame is the encoded progress.
func (h *Hub) gapFrame(t *track, from, to uint64, why wirev1.Code) []byte {
	return h.queues.Encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, h.progress(t, from, to, why))
}

// expired skips a message whose time is over.
func (h *Hub) expired(t *track, m *exchange.Message) {
	if t.cur != nil {
		h.giveUp(t, m, t.cur.Attempts(m.Seq), wirev1.Code_CODE_EXPIRED)
	}
	h.hole(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED)
}

// conflate keeps the newest message alone: it goes out once nothing of the track is queued and a
// window is open.
func (h *Hub) conflate(t *track, m *exchange.Message) {
	h.skipLatest(t)
	h.trackmore(t).latest, t.pos = m, m.Seq
	h.tryLatest(t)
}

// skipLatest gives up the message that waits, because a newer one came.
func (h *Hub) skipLatest(t *track) {
	m := t.latest
	if m == nil {
		return
	}
	h.noLatest(t)
	if t.holeTo == 0 || t.holeFrom < m.Seq {
		h.hole(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
		return
	}
	// What was filtered behind it is named after it.
	from, to, why, pos := t.holeFrom, t.holeTo, t.holeCode, t.pos
	h.noHole(t)
	h.hole(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
	h.nameHole(t, 0)
	more := h.trackmore(t)
	more.holeFrom, more.holeTo, more.holeCode, more.holeDue = from, to, why, h.now+int64(holeDelay)
	h.wheel.Sooner(t.c.slot, t.holeDue)
	t.pos = pos
}

// tryLatest hands on the message that waits, if it may.
func (h *Hub) tryLatest(t *track) {
	m := t.latest
	if m == nil || t.Queued() > 0 || t.c.draining || t.c.state != stateOpen {
		return
	}
	switch h.deliver(t, m, 0) {
	case wirev1.Code_CODE_OK:
		h.noLatest(t)
		return
	case wirev1.Code_CODE_MEMORY_BUDGET:
		h.readLater(t)
	}
	h.waitFor(t)
}

// dropOldest makes room for m by turning the track's oldest queued messages into a named hole.
func (h *Hub) dropOldest(t *track, m *exchange.Message, why wirev1.Code) {
	c, gap := t.c, sendq.NoGap
	q := &c.out
	for i := uint32(0); i < q.Len(); i++ { //nolint:intrange // splitting a run makes the queue longer
		it := q.At(i)
		if it.Stream() != &t.Stream || q.Begun(i) {
			continue
		}
		if it.Kind() == sendq.Gap {
			if gap = sendq.NoGap; it.MadeFor(why) { // one of a change of epoch has no reason
				gap = i
			}
			continue
		}
		for more := true; more; {
			// else a split has made the rest the next item
			more = gap != sendq.NoGap && q.At(i).Count() > 1
			h.stats.Drops.add(why, 1)
			h.looked(looksAsOne)
			gap = h.dropInto(c, i, gap, why)
			if h.deliver(t, m, 0) == wirev1.Code_CODE_OK {
				h.looked(int(i))
				q.Tidy()
				return
			}
		}
	}
	h.looked(int(q.Len()))
	h.hole(t, m.Seq, m.Seq, why)
}

// dropInto makes the first message of the i-th item part of the gap at a place, or with NoGap a gap
// of its own, and gives the place of that.
func (h *Hub) dropInto(c *conn, i, gap uint32, why wirev1.Code) uint32 {
	it := c.out.At(i)
	t, seq := trackOf(it.Stream()), it.Message().Seq
	from := seq
	if gap != sendq.NoGap {
		from = c.out.At(gap).From()
	}
	return c.out.DropFirstInto(i, gap, h.gapFrame(t, from, seq, why), why)
}
