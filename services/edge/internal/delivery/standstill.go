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
func (r *replayer) near(t *track, seq uint64) bool {
	return t.cur == nil || seq <= t.cur.Floor+uint64(r.hub.lim.Span)
}

// stands reports whether the track stands still behind a message that is not settled.
func (r *replayer) stands(t *track) bool { return t.cur != nil && !r.near(t, t.pos+1) }

// tendFirst has the message read that a track stands still behind, unless it is with the client, or
// on its way.
func (r *replayer) tendFirst(t *track) {
	c := t.c
	switch {
	case !t.ack || t.reading || t.told || t.held || c.state != stateOpen || c.draining || t.retryAt > r.hub.now || !r.stands(t):
		return
	case c.unacked >= c.window || t.window > 0 && t.unacked >= uint32(t.window) || !r.hub.drained(c):
		return // wake comes here again
	}
	first := t.cur.Floor + 1
	if t.win != nil && t.win.Find(first) != nil {
		return
	}
	r.hub.stats.StandStills++
	r.hub.tracks.more(t).first = first
	r.read(t, first, 1)
}

// read asks for a range of the topic's log from a seq on, unless another track waits for the same.
func (r *replayer) read(t *track, from uint64, size int) {
	ts := t.topic
	r.hub.tracks.more(t).asked, t.reading = from, true
	if r.reads.Wait(&ts.reads, from, t.ref()) {
		r.hub.stats.LogReads++
		r.hub.mesh.Read(r.hub.cfg.Loop, strings.Clone(ts.name), t.epoch, from, 0, size)
	}
}

// firstArrived goes on with what tendFirst asked for.
func (r *replayer) firstArrived(t *track, e *exchange.Range) {
	first := t.trackMore.first
	r.hub.tracks.more(t).first = 0
	switch {
	case e.Epoch > t.epoch && (e.Err == nil || code.Of(e.Err) == wirev1.Code_CODE_EPOCH_CHANGED):
		r.hub.newEpoch(t, e.Epoch, 0)
		t.behind = true
	case e.Err != nil || e.Epoch < t.epoch:
		r.readLater(t)
	case !r.stands(t) || t.cur.Floor+1 != first: // settled meanwhile
	case len(e.Messages) > 0 && e.Messages[0].Seq == first:
		r.sendAgain(t, e.Messages[0])
	case e.Oldest > first:
		r.hub.gaps.addGap(t, first, e.Oldest-1, wirev1.Code_CODE_RETENTION)
	case len(e.Messages) > 0:
		r.hub.gaps.addGap(t, first, e.Messages[0].Seq-1, wirev1.Code_CODE_RETENTION)
	default:
		r.readLater(t) // the log is not as far as it says
	}
	if t.behind {
		r.enqueue(t)
	}
	r.hub.tracks.less(t)
	r.hub.waker.wake(t.c)
}

// sendAgain sends a message to the client again that had left the window un-ACKed, or gives it up.
func (r *replayer) sendAgain(t *track, m *exchange.Message) {
	c, attempts := t.c, t.cur.Attempts(m.Seq)
	switch {
	case r.hub.hasExpired(m):
		r.exhausted(t, m, attempts, wirev1.Code_CODE_EXPIRED)
		return
	case attempts >= r.hub.topics.policy(t.topic).MaxAttempts:
		r.exhausted(t, m, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		return
	}
	switch r.hub.judge(t, m) {
	case filtered:
		r.hub.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		return
	case unjudged:
		r.readLater(t)
		return
	}
	if c.unacked >= c.window || r.hub.full(c, len(m.Frame)) != wirev1.Code_CODE_OK {
		r.readLater(t)
		return
	}
	if t.win != nil {
		c.timedOut -= min(c.timedOut, uint32(t.win.Unpark(false, m.Seq, nil)))
	}
	r.hub.windows.opened(t, m, uint16(min(attempts, 65535)))
	t.win.Find(m.Seq).Sends = 1 // so that a late ACK of what was sent before counts
	it := sendq.Redelivery(m, &t.Stream, t.kind != kindPlain, uint16(min(attempts, 65535)))
	r.hub.push(c, &it)
	r.hub.sessions.cursorChanged(t)
}

// exhausted makes a message a dead letter of the session that is not sent any more, and says so.
func (r *replayer) exhausted(t *track, m *exchange.Message, attempts uint32, why wirev1.Code) {
	r.hub.stats.Drops.add(why, 1)
	r.hub.sessions.giveUp(t, m, attempts, why)
	r.hub.control(t.c, wirev1.FrameType_FRAME_TYPE_PROGRESS, r.hub.gaps.progress(t, m.Seq, m.Seq, why))
}
