package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// offerRun hands the live messages in hand to a track: as they are shared where nothing speaks
// against it, else one by one.
func (f *fanout) offerRun(t *state.Track) {
	if t.Rank != nil {
		f.hub.ranked.offer(t)
		return
	}
	c := t.Conn
	first := f.ms[0]
	if c.Phase == state.Open && !c.Draining && t.Epoch == first.Epoch && t.Pos+1 == first.Seq && !t.Behind && t.Kind == state.KindPlain && !t.ACK &&
		t.Overflow != state.OverflowConflate && !t.Gap.IsOpen() && !t.Unnamed && f.fresh() && f.fits(c) {
		t.Pos = f.ms[len(f.ms)-1].Seq
		f.pushRuns(c, &t.Stream, f.runs)
		return
	}
	for _, m := range f.ms {
		f.hub.offer(t, m)
	}
}

// offer hands a live message to a track.
func (h *Hub) offer(t *state.Track, m *exchange.Message) {
	if t.Conn.Phase != state.Open || t.Conn.Draining {
		return
	}
	if t.Epoch != m.Epoch && !h.epochOf(t, m) {
		return
	}
	if t.Behind || m.Seq <= t.Pos {
		return
	}
	if m.Seq != t.Pos+1 {
		if t.Overflow != state.OverflowConflate {
			h.fallBehind(t)
			return
		}
		h.gaps.skipLatest(t)
		h.gaps.addGap(t, t.Pos+1, m.Seq-1, wirev1.Code_CODE_CONFLATED)
	}
	if why := h.take(t, m); why != wirev1.Code_CODE_OK {
		h.overflow(t, m, why)
	}
}

// epochOf makes the track one of the message's epoch; false where the message is of an older one.
func (h *Hub) epochOf(t *state.Track, m *exchange.Message) bool {
	switch {
	case t.Epoch != 0 && (t.Told.Any() || t.Held && t.Behind):
		return false // it stays where it is, and sees from the topic later
	case t.Epoch == 0:
		h.learnEpoch(t, m.Epoch)
		t.Pos = m.Seq - 1
		if t.Kind == state.KindSession {
			h.tracks.More(t).Cursor = &cursor.Cursor{Epoch: m.Epoch, Floor: t.Pos}
			h.sessions.cursorChanged(t)
		}
	case m.Epoch < t.Epoch:
		return false
	default:
		h.newEpoch(t, m.Epoch, m.Priority)
	}
	return true
}

// learnEpoch gives a track its first epoch, of which no answer has told the client.
func (h *Hub) learnEpoch(t *state.Track, epoch uint64) {
	t.Epoch = epoch
	h.tracks.More(t).Unnamed = true
}

// nameEpoch tells the client of an epoch that it was not told of: without it, it could not tell
// this log from the next one.
func (h *Hub) nameEpoch(t *state.Track, priority uint8) {
	if !t.Unnamed {
		return
	}
	h.tracks.More(t).Unnamed = false
	h.tracks.Less(t)
	it := sendq.GapOf(&t.Stream, 0, h.gaps.progressFrame(t, 0, 0, wirev1.Code_CODE_EPOCH_CHANGED), priority)
	h.push(t.Conn, &it)
}

// newEpoch begins again at the log's new beginning. What is still queued of the old one goes out
// first.
func (h *Hub) newEpoch(t *state.Track, epoch uint64, priority uint8) {
	h.gaps.reportGap(t, priority)
	t.Epoch, t.Pos = epoch, 0
	h.gaps.forgetLatest(t)
	t.Behind = false
	if t.Rank != nil {
		t.Rank.Forget()
	}
	h.replay.releaseRange(t)
	h.learnEpoch(t, epoch)
	h.nameEpoch(t, priority)
	if t.Cursor != nil {
		h.tracks.More(t).Cursor = &cursor.Cursor{Epoch: epoch}
		h.sessions.cursorChanged(t)
	}
	h.windows.drop(t)
}

// take hands on the message after pos, or names it a gap. OK: done, and pos has moved; otherwise
// why not now: QUEUE_FULL, MEMORY_BUDGET, SLOW_CONSUMER for a full window, or FILTERED where it has
// to be judged first.
func (h *Hub) take(t *state.Track, m *exchange.Message) wirev1.Code {
	if t.Cursor != nil && t.Cursor.Has(m.Seq) {
		t.Pos = m.Seq
		return wirev1.Code_CODE_OK
	}
	if m.ExpiresAt != 0 && m.ExpiresAt <= h.wall {
		h.gaps.expired(t, m)
		return wirev1.Code_CODE_OK
	}
	switch h.tracks.Judge(t, m) {
	case state.Filtered:
		h.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		return wirev1.Code_CODE_OK
	case state.Unjudged:
		return wirev1.Code_CODE_FILTERED
	}
	if t.Overflow == state.OverflowConflate {
		h.gaps.conflate(t, m)
		return wirev1.Code_CODE_OK
	}
	return h.deliver(t, m, 0)
}

// deliver queues a first delivery.
func (h *Hub) deliver(t *state.Track, m *exchange.Message, is sendq.Mark) wirev1.Code {
	c := t.Conn
	if t.ACK && (c.Unacked >= c.Window || t.Window > 0 && t.Unacked >= uint32(t.Window)) {
		return wirev1.Code_CODE_SLOW_CONSUMER
	}
	if !h.replay.near(t, m.Seq) {
		return wirev1.Code_CODE_SLOW_CONSUMER
	}
	if why := h.full(c, len(m.Frame)); why != wirev1.Code_CODE_OK {
		return why
	}
	it := sendq.Delivery(m, &t.Stream, t.Kind != state.KindPlain, is)
	if t.Cursor != nil {
		if n := t.Cursor.Attempts(m.Seq); n > 0 {
			if n >= h.topics.Policy(t.Topic).MaxAttempts && h.sessions.mayExhaust(t) {
				h.sessions.giveUp(t, m, n, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
				h.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
				return wirev1.Code_CODE_OK
			}
			it.SetAttempt(uint16(min(n, 65535)))
		}
	}
	h.nameEpoch(t, m.Priority)
	if t.Gap.Precedes(m.Seq) {
		// behind the newest of CONFLATE, which waited, some may have been filtered
		h.gaps.reportGap(t, m.Priority)
	}
	if t.ACK {
		h.windows.add(t, m, it.Attempt())
	}
	t.Pos = max(t.Pos, m.Seq)
	h.push(c, &it)
	return wirev1.Code_CODE_OK
}

// overflow does what the subscription asked for where a live message found the queue or the window
// full.
func (h *Hub) overflow(t *state.Track, m *exchange.Message, why wirev1.Code) {
	switch {
	case why == wirev1.Code_CODE_SLOW_CONSUMER, why == wirev1.Code_CODE_FILTERED:
		h.fallBehind(t)
	case t.Overflow == state.OverflowDisconnect:
		h.fail(t.Conn, wirev1.Code_CODE_SLOW_CONSUMER, "the subscription's queue is full")
	case t.Overflow == state.OverflowDropOldest:
		h.gaps.dropOldest(t, m, why)
	default:
		h.purge(t, false)
		h.fallBehind(t)
	}
}

// fallBehind makes the track read on from the log.
func (h *Hub) fallBehind(t *state.Track) {
	t.Behind = true
	h.stats.Behind++
	h.replay.enqueue(t)
}

// purge drops the track's queued first deliveries and steps back to before them; all drops
// everything of it.
func (h *Hub) purge(t *state.Track, all bool) {
	if t.Queued() == 0 && !all {
		return
	}
	q, begin := &t.Conn.Out, uint32(0)
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

func (h *Hub) stepBack(t *state.Track, it *sendq.Item) {
	seq, is := it.From(), sendq.Mark(0)
	if it.Kind() == sendq.Message {
		seq, is = it.Message().Seq, it.Mark()
		for m, n := it.Message(), it.Count(); n > 0; m, n = m.Next, n-1 {
			h.windows.takeBack(t, m.Seq)
		}
	}
	if t.Rank != nil {
		t.Rank.Order.PutBack(seq, is)
		return
	}
	t.Pos = min(t.Pos, seq-1)
	h.gaps.forgetGap(t)
}
