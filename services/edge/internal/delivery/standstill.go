package delivery

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A session is sent nothing more than Limits.Span seqs behind the first one that it has not
// settled. A message that timed out as often as it is sent on one connection waits for the next
// connection; where the session comes to stand still behind it, and a connection may last for
// months, it does not wait: it is read from the log and sent again, until it is ACKed or its
// attempts are used up and it is a dead letter.

// near reports whether seq is near enough to the first message that is not settled to be sent.
func (h *Hub) near(t *track, seq uint64) bool {
	return t.cur == nil || seq <= t.cur.Floor+uint64(h.lim.Span)
}

// stands reports whether the track stands still behind a message that is not settled.
func (h *Hub) stands(t *track) bool { return t.cur != nil && !h.near(t, t.pos+1) }

// tendFirst has the message read that a track stands still behind, unless it is with the client, or
// on its way.
func (h *Hub) tendFirst(t *track) {
	c := t.c
	switch {
	case !t.ack || t.reading || t.told || t.held || c.state != stateOpen || c.draining || t.retryAt > h.now || !h.stands(t):
		return
	case c.unacked >= c.window || t.window > 0 && t.unacked >= uint32(t.window) || !h.drained(c):
		return // wake comes here again
	}
	first := t.cur.Floor + 1
	if t.win != nil && t.win.find(first) != nil {
		return
	}
	h.stats.StandStills++
	h.trackmore(t).first = first
	h.read(t, first, 1)
}

// read asks for a range of the topic's log from a seq on, unless another track waits for the same.
func (h *Hub) read(t *track, from uint64, size int) {
	ts := t.topic
	h.trackmore(t).asked, t.reading = from, true
	if ts.reads == nil {
		ts.reads = h.reads.Take()
		ts.reads.from = map[uint64][]trackRef{}
	}
	waiting := ts.reads.from[from]
	ts.reads.from[from] = append(waiting, t.ref())
	if len(waiting) == 0 {
		h.stats.LogReads++
		h.mesh.Read(h.cfg.Loop, strings.Clone(ts.name), t.epoch, from, 0, size)
	}
}

// firstArrived goes on with what tendFirst asked for.
func (h *Hub) firstArrived(t *track, e *exchange.Range) {
	first := t.trackMore.first
	h.trackmore(t).first = 0
	switch {
	case e.Epoch > t.epoch && (e.Err == nil || code.Of(e.Err) == wirev1.Code_CODE_EPOCH_CHANGED):
		h.newEpoch(t, e.Epoch, 0)
		t.behind = true
	case e.Err != nil || e.Epoch < t.epoch:
		h.readLater(t)
	case !h.stands(t) || t.cur.Floor+1 != first: // settled meanwhile
	case len(e.Messages) > 0 && e.Messages[0].Seq == first:
		h.sendAgain(t, e.Messages[0])
	case e.Oldest > first:
		h.hole(t, first, e.Oldest-1, wirev1.Code_CODE_RETENTION)
	case len(e.Messages) > 0:
		h.hole(t, first, e.Messages[0].Seq-1, wirev1.Code_CODE_RETENTION)
	default:
		h.readLater(t) // the log is not as far as it says
	}
	if t.behind {
		h.run(t)
	}
	h.trackless(t)
	h.wake(t.c)
}

// sendAgain sends a message to the client again that had left the window un-ACKed, or gives it up.
func (h *Hub) sendAgain(t *track, m *exchange.Message) {
	c, attempts := t.c, t.cur.Attempts(m.Seq)
	switch {
	case h.hasExpired(m):
		h.exhausted(t, m, attempts, wirev1.Code_CODE_EXPIRED)
		return
	case attempts >= h.policy(t.topic).MaxAttempts:
		h.exhausted(t, m, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		return
	}
	switch h.judge(t, m) {
	case filtered:
		h.hole(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		return
	case unjudged:
		h.readLater(t)
		return
	}
	if c.unacked >= c.window || h.full(c, len(m.Frame)) != wirev1.Code_CODE_OK {
		h.readLater(t)
		return
	}
	if t.win != nil {
		c.timedOut -= min(c.timedOut, uint32(t.win.unpark(false, m.Seq)))
	}
	h.opened(t, m, uint16(min(attempts, 65535)))
	t.win.find(m.Seq).sends = 1 // so that a late ACK of what was sent before counts
	it := sendq.Redelivery(m, &t.Stream, t.kind != kindPlain, uint16(min(attempts, 65535)))
	h.push(c, &it)
	h.cursorChanged(t)
}

// exhausted makes a message a dead letter of the session that is not sent any more, and says so.
func (h *Hub) exhausted(t *track, m *exchange.Message, attempts uint32, why wirev1.Code) {
	h.stats.Drops.add(why, 1)
	h.giveUp(t, m, attempts, why)
	h.control(t.c, wirev1.FrameType_FRAME_TYPE_PROGRESS, h.progress(t, m.Seq, m.Seq, why))
}
