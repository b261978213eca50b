package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// offerRun hands the live messages in hand to a track: as they are shared where nothing speaks
// against it, else one by one.
func (f *fanout) offerRun(t *track) {
	if t.rank != nil {
		f.hub.ranked.offer(t)
		return
	}
	c := t.c
	first := f.ms[0]
	if c.state == stateOpen && !c.draining && t.epoch == first.Epoch && t.pos+1 == first.Seq && !t.behind && t.kind == kindPlain && !t.ack &&
		t.overflow != overflowConflate && !t.gap.IsOpen() && !t.unnamed && f.fresh() && f.fits(c) {
		t.pos = f.ms[len(f.ms)-1].Seq
		f.pushRuns(c, &t.Stream, f.runs)
		return
	}
	for _, m := range f.ms {
		f.hub.offer(t, m)
	}
}

// offer hands a live message to a track.
func (h *Hub) offer(t *track, m *exchange.Message) {
	if t.c.state != stateOpen || t.c.draining {
		return
	}
	if t.epoch != m.Epoch && !h.epochOf(t, m) {
		return
	}
	if t.behind || m.Seq <= t.pos {
		return
	}
	if m.Seq != t.pos+1 {
		if t.overflow != overflowConflate {
			h.fallBehind(t)
			return
		}
		h.gaps.skipLatest(t)
		h.gaps.addGap(t, t.pos+1, m.Seq-1, wirev1.Code_CODE_CONFLATED)
	}
	if why := h.take(t, m); why != wirev1.Code_CODE_OK {
		h.overflow(t, m, why)
	}
}

// epochOf makes the track one of the message's epoch; false where the message is of an older one.
func (h *Hub) epochOf(t *track, m *exchange.Message) bool {
	switch {
	case t.epoch == 0:
		h.learnEpoch(t, m.Epoch)
		t.pos = m.Seq - 1
		if t.kind == kindSession {
			h.tracks.more(t).cur = &cursor.Cursor{Epoch: m.Epoch, Floor: t.pos}
			h.sessions.cursorChanged(t)
		}
	case m.Epoch < t.epoch:
		return false
	default:
		h.newEpoch(t, m.Epoch, m.Priority)
	}
	return true
}

// learnEpoch gives a track its first epoch, of which no answer has told the client.
func (h *Hub) learnEpoch(t *track, epoch uint64) {
	t.epoch = epoch
	h.tracks.more(t).unnamed = true
}

// nameEpoch tells the client of an epoch that it was not told of: without it, it could not tell
// this log from the next one.
func (h *Hub) nameEpoch(t *track, priority uint8) {
	if !t.unnamed {
		return
	}
	h.tracks.more(t).unnamed = false
	h.tracks.less(t)
	it := sendq.GapOf(&t.Stream, 0, h.gaps.progressFrame(t, 0, 0, wirev1.Code_CODE_EPOCH_CHANGED), priority)
	h.push(t.c, &it)
}

// newEpoch begins again at the log's new beginning. What is still queued of the old one goes out
// first.
func (h *Hub) newEpoch(t *track, epoch uint64, priority uint8) {
	h.gaps.reportGap(t, priority)
	t.epoch, t.pos = epoch, 0
	h.gaps.forgetLatest(t)
	t.behind = false
	if t.rank != nil {
		t.rank.Forget()
	}
	h.replay.releaseRange(t)
	h.learnEpoch(t, epoch)
	h.nameEpoch(t, priority)
	if t.cur != nil {
		h.tracks.more(t).cur = &cursor.Cursor{Epoch: epoch}
		h.sessions.cursorChanged(t)
	}
	h.windows.forget(t)
}

// take hands on the message after pos, or names it a gap. OK: done, and pos has moved; otherwise
// why not now: QUEUE_FULL, MEMORY_BUDGET, SLOW_CONSUMER for a full window, or FILTERED where it has
// to be judged first.
func (h *Hub) take(t *track, m *exchange.Message) wirev1.Code {
	if t.cur != nil && t.cur.Has(m.Seq) {
		t.pos = m.Seq
		return wirev1.Code_CODE_OK
	}
	if m.ExpiresAt != 0 && m.ExpiresAt <= h.wall {
		h.gaps.expired(t, m)
		return wirev1.Code_CODE_OK
	}
	switch h.judge(t, m) {
	case filtered:
		h.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		return wirev1.Code_CODE_OK
	case unjudged:
		return wirev1.Code_CODE_FILTERED
	}
	if t.overflow == overflowConflate {
		h.gaps.conflate(t, m)
		return wirev1.Code_CODE_OK
	}
	return h.deliver(t, m, 0)
}

// deliver queues a first delivery.
func (h *Hub) deliver(t *track, m *exchange.Message, is sendq.Mark) wirev1.Code {
	c := t.c
	if t.ack && (c.unacked >= c.window || t.window > 0 && t.unacked >= uint32(t.window)) {
		return wirev1.Code_CODE_SLOW_CONSUMER
	}
	if !h.replay.near(t, m.Seq) {
		return wirev1.Code_CODE_SLOW_CONSUMER
	}
	if why := h.full(c, len(m.Frame)); why != wirev1.Code_CODE_OK {
		return why
	}
	it := sendq.Delivery(m, &t.Stream, t.kind != kindPlain, is)
	if t.cur != nil {
		if n := t.cur.Attempts(m.Seq); n > 0 {
			if n >= h.topics.policy(t.topic).MaxAttempts {
				h.sessions.giveUp(t, m, n, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
				h.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
				return wirev1.Code_CODE_OK
			}
			it.SetAttempt(uint16(min(n, 65535)))
		}
	}
	h.nameEpoch(t, m.Priority)
	if t.gap.Precedes(m.Seq) {
		// behind the newest of CONFLATE, which waited, some may have been filtered
		h.gaps.reportGap(t, m.Priority)
	}
	if t.ack {
		h.windows.add(t, m, it.Attempt())
	}
	t.pos = max(t.pos, m.Seq)
	h.push(c, &it)
	return wirev1.Code_CODE_OK
}

// overflow does what the subscription asked for where a live message found the queue or the window
// full.
func (h *Hub) overflow(t *track, m *exchange.Message, why wirev1.Code) {
	switch {
	case why == wirev1.Code_CODE_SLOW_CONSUMER, why == wirev1.Code_CODE_FILTERED:
		h.fallBehind(t)
	case t.overflow == overflowDisconnect:
		h.fail(t.c, wirev1.Code_CODE_SLOW_CONSUMER, "the subscription's queue is full")
	case t.overflow == overflowDropOldest:
		h.gaps.dropOldest(t, m, why)
	default:
		h.purge(t, false)
		h.fallBehind(t)
	}
}

// fallBehind makes the track read on from the log.
func (h *Hub) fallBehind(t *track) {
	t.behind = true
	h.stats.Behind++
	h.replay.enqueue(t)
}

// purge drops the track's queued first deliveries and steps back to before them; all drops
// everything of it.
func (h *Hub) purge(t *track, all bool) {
	if t.Queued() == 0 && !all {
		return
	}
	q, begin := &t.c.out, uint32(0)
	if !all {
		// What stands before a change of epoch can't be read again.
		for i := range q.Len() {
			if it := q.At(i); it.Stream() == &t.Stream && it.Kind() == sendq.Gap && it.From() == 0 {
				begin = i + 1
			}
		}
	}
	for i := begin; i < q.Len(); i++ {
		it := q.At(i)
		switch {
		case it.Stream() != &t.Stream:
		case q.Begun(i):
			if all {
				q.Detach(i) // nothing of the track is needed for its bytes
			}
		case all:
			q.Drop(i)
		case it.Kind() == sendq.Gap, it.Kind() == sendq.Message && it.Message().Seq != 0 && !it.Again():
			h.stepBack(t, it)
			q.Drop(i)
		}
	}
	h.addCost(int(q.Len()))
	if q.Dead() > 64 {
		q.Compact()
	}
}

func (h *Hub) stepBack(t *track, it *sendq.Item) {
	seq, is := it.From(), sendq.Mark(0)
	if it.Kind() == sendq.Message {
		seq, is = it.Message().Seq, it.Mark()
		for m, n := it.Message(), it.Count(); n > 0; m, n = m.Next, n-1 {
			h.windows.takeBack(t, m.Seq)
		}
	}
	if t.rank != nil {
		t.rank.Order.PutBack(seq, is)
		return
	}
	t.pos = min(t.pos, seq-1)
	h.gaps.forgetGap(t)
}
