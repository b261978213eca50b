package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// windows follow messages from when they are queued until they are ACKed.
type windows struct {
	hub  *Hub
	pool unacked.Pool
}

// add puts a message that was just queued into the windows.
func (v *windows) add(t *track, m *exchange.Message, attempt uint16) {
	if t.win == nil {
		v.hub.tracks.more(t).win = v.pool.Take()
	}
	t.win.Add(m, attempt)
	v.counted(t, 1)
}

func (v *windows) counted(t *track, sign int) {
	t.unacked += uint32(sign)
	t.c.unacked += uint32(sign)
	v.hub.stats.Unacked += int64(sign)
}

// remove takes an entry out of the windows.
func (v *windows) remove(t *track, e *unacked.Entry) {
	if e.Queued && e.Sends > 0 {
		v.killAgain(t, e.Seq)
	}
	t.win.Remove(e)
	v.counted(t, -1)
	v.giveEmpty(t)
	v.hub.waker.wake(t.c)
}

// giveEmpty has others use a window that nothing is in any more.
func (v *windows) giveEmpty(t *track) {
	if w := t.win; w.IsEmpty() {
		v.hub.tracks.more(t).win = nil
		v.hub.tracks.less(t)
		v.pool.Give(w)
	}
}

// takeBack takes out a message that was queued and will not be sent now.
func (v *windows) takeBack(t *track, seq uint64) {
	if t.win == nil {
		return
	}
	if e := t.win.Find(seq); e != nil && e.Sends == 0 {
		v.remove(t, e)
	}
}

// killAgain drops a queued redelivery.
func (v *windows) killAgain(t *track, seq uint64) {
	q := &t.c.out
	for i := range q.Len() {
		if it := q.At(i); it.Stream() == &t.Stream && it.Kind() == sendq.Message && it.Again() && it.Message().Seq == seq && !q.Begun(i) {
			v.hub.addCost(int(i))
			q.Drop(i)
			q.Tidy()
			return
		}
	}
	v.hub.addCost(int(q.Len()))
}

// follows reports whether it matters to the track when its messages leave.
func (t *track) follows() bool { return t.ack || t.cur != nil || t.latest != nil }

// onSent is told when the bytes of a message of a track have left for the kernel: the ACK timer
// starts.
func (v *windows) onSent(c *conn, t *track, m *exchange.Message) {
	if m.Seq == 0 {
		return
	}
	if t.latest != nil && t.Queued() == 0 {
		v.hub.gaps.tryLatest(t)
	}
	if !t.ack {
		if t.cur != nil && m.Epoch == t.epoch { // a session that doesn't ACK has what was sent
			t.cur.Settle(m.Seq, m.Seq)
			v.hub.sessions.cursorChanged(t)
		}
		return
	}
	if t.win == nil {
		return
	}
	e := t.win.Find(m.Seq)
	if e == nil || e.Message != m {
		return
	}
	e.Sent(v.hub.now + int64(v.hub.topics.policy(t.topic).AckTimeout))
	v.hub.wheel.Sooner(c.slot, e.Due)
}

// overdue does what must happen to a message that was not ACKed in time, or whose Nack's delay is
// over.
func (v *windows) overdue(t *track, e *unacked.Entry) {
	p, c := v.hub.topics.policy(t.topic), t.c
	attempts := uint32(e.Attempt) + 1
	switch {
	case e.Message.ExpiresAt != 0 && e.Message.ExpiresAt <= v.hub.wall:
		v.hub.replay.exhausted(t, e.Message, attempts, wirev1.Code_CODE_EXPIRED)
		v.remove(t, e)
	case t.cur != nil && attempts >= p.MaxAttempts:
		v.hub.replay.exhausted(t, e.Message, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		v.remove(t, e)
	case uint32(e.Sends) > p.MaxRedeliveries:
		v.park(t, e, attempts)
		if c.timedOut >= c.window {
			v.hub.fail(c, wirev1.Code_CODE_ACK_TIMEOUT, "a window's worth of messages was not ACKed in time")
		}
	case !v.hub.fitsBudget(c, len(e.Message.Frame)+c.out.Extra(1)):
		v.hub.wait(t, e)
	default:
		e.Again()
		it := sendq.Redelivery(e.Message, &t.Stream, t.kind != kindPlain, e.Attempt)
		v.hub.push(c, &it)
		v.hub.sessions.cursorChanged(t)
	}
}

// park has a message wait for the session's next connection; without a session it is let go.
func (v *windows) park(t *track, e *unacked.Entry, attempts uint32) {
	v.hub.stats.AckTimeouts++
	if t.cur != nil {
		t.cur.Attempted(e.Seq, attempts)
		v.hub.sessions.cursorChanged(t)
	}
	if !e.Nacked {
		t.c.timedOut++
		t.win.Park(e.Seq)
	}
	v.remove(t, e)
}

// drop lets go of everything un-ACKed. How often a session's were attempted is kept in its
// cursor.
func (v *windows) drop(t *track) {
	w := t.win
	if w == nil {
		return
	}
	if t.cur != nil {
		w.KeepAttempts(t.cur)
	}
	v.counted(t, -int(t.unacked))
	v.hub.addCost(w.End())
	t.c.timedOut -= min(t.c.timedOut, uint32(w.Parked()))
	w.Clear()
	v.giveEmpty(t)
	v.hub.waker.wake(t.c)
}

// forget lets go of what an epoch that is over left un-ACKed; what is queued still goes
// out.
func (v *windows) forget(t *track) {
	if t.win != nil {
		v.drop(t)
	}
}
