package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// windows follow messages from when they are queued until they are ACKed.
type windows struct {
	hub  *Hub
	pool unacked.Pool
}

// add puts a message that was just queued into the windows.
func (v *windows) add(t *state.Track, m *exchange.Message, attempt uint16) {
	if t.Win == nil {
		v.hub.tracks.More(t).Win = v.pool.Take()
	}
	t.Win.Add(m, attempt)
	v.counted(t, 1)
}

func (v *windows) counted(t *state.Track, sign int) {
	t.Unacked += uint32(sign)
	t.Conn.Unacked += uint32(sign)
	v.hub.stats.Unacked += int64(sign)
}

// remove takes an entry out of the windows.
func (v *windows) remove(t *state.Track, e *unacked.Entry) {
	if e.Queued && e.Sends > 0 {
		v.killAgain(t, e.Seq)
	}
	t.Win.Remove(e)
	v.counted(t, -1)
	v.giveEmpty(t)
	v.hub.waker.wake(t.Conn)
}

// giveEmpty has others use a window that nothing is in any more.
func (v *windows) giveEmpty(t *state.Track) {
	if w := t.Win; w.IsEmpty() {
		v.hub.tracks.More(t).Win = nil
		v.hub.tracks.Less(t)
		v.pool.Give(w)
	}
}

// takeBack takes out a message that was queued and will not be sent now.
func (v *windows) takeBack(t *state.Track, seq uint64) {
	if t.Win == nil {
		return
	}
	if e := t.Win.Find(seq); e != nil && e.Sends == 0 {
		v.remove(t, e)
	}
}

// killAgain drops a queued redelivery.
func (v *windows) killAgain(t *state.Track, seq uint64) {
	q := &t.Conn.Out
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

// onSent is told when the bytes of a message of a track have left for the kernel: the ACK timer
// starts.
func (v *windows) onSent(c *state.Conn, t *state.Track, m *exchange.Message) {
	if m.Seq == 0 {
		return
	}
	if t.Latest != nil && t.Queued() == 0 {
		v.hub.gaps.tryLatest(t)
	}
	if !t.ACK {
		if t.Cursor != nil && m.Epoch == t.Epoch { // a session that doesn't ACK has what was sent
			t.Cursor.Settle(m.Seq, m.Seq)
			v.hub.sessions.cursorChanged(t)
		}
		return
	}
	if t.Win == nil {
		return
	}
	e := t.Win.Find(m.Seq)
	if e == nil || e.Message != m {
		return
	}
	e.Sent(v.hub.now + int64(v.hub.topics.Policy(t.Topic).AckTimeout))
	v.hub.wheel.Sooner(c.Slot, e.Due)
}

// overdue does what must happen to a message that was not ACKed in time, or whose Nack's delay is
// over.
func (v *windows) overdue(t *state.Track, e *unacked.Entry) {
	p, c := v.hub.topics.Policy(t.Topic), t.Conn
	attempts := uint32(e.Attempt) + 1
	switch {
	case e.Message.ExpiresAt != 0 && e.Message.ExpiresAt <= v.hub.wall:
		v.hub.replay.exhausted(t, e.Message, attempts, wirev1.Code_CODE_EXPIRED)
		v.remove(t, e)
	case t.Cursor != nil && attempts >= p.MaxAttempts && !v.hub.sessions.mayExhaust(t):
		e.Due = v.hub.now + exhaustLater + int64(e.Seq%exhaustSpread)*exhaustLater/exhaustSpread
		v.hub.wheel.Sooner(c.Slot, e.Due)
	case t.Cursor != nil && attempts >= p.MaxAttempts:
		v.hub.replay.exhausted(t, e.Message, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		v.remove(t, e)
	case uint32(e.Sends) > p.MaxRedeliveries:
		v.park(t, e, attempts)
		if c.TimedOut >= c.Window {
			v.hub.fail(c, wirev1.Code_CODE_ACK_TIMEOUT, "a window's worth of messages was not ACKed in time")
		}
	case !v.hub.fitsBudget(c, len(e.Message.Frame)+c.Out.Extra(1)):
		v.hub.wait(t, e)
	default:
		e.Again()
		it := sendq.Redelivery(e.Message, &t.Stream, t.Kind != state.KindPlain, e.Attempt)
		v.hub.push(c, &it)
		v.hub.sessions.cursorChanged(t)
	}
}

// park has a message wait for the session's next connection; without a session it is let go.
func (v *windows) park(t *state.Track, e *unacked.Entry, attempts uint32) {
	v.hub.stats.AckTimeouts++
	if t.Cursor != nil {
		t.Cursor.Attempted(e.Seq, attempts)
		v.hub.sessions.cursorChanged(t)
	}
	if !e.Nacked {
		t.Conn.TimedOut++
		t.Win.Park(e.Seq)
	}
	v.remove(t, e)
}

// drop lets go of everything un-ACKed. How often a session's were attempted is kept in its
// cursor.
func (v *windows) drop(t *state.Track) {
	w := t.Win
	if w == nil {
		return
	}
	if t.Cursor != nil {
		w.KeepAttempts(t.Cursor)
	}
	v.counted(t, -int(t.Unacked))
	v.hub.addCost(w.End())
	t.Conn.TimedOut -= min(t.Conn.TimedOut, uint32(w.Parked()))
	w.Clear()
	v.giveEmpty(t)
	v.hub.waker.wake(t.Conn)
}

// forget lets go of what an epoch that is over left un-ACKed; what is queued still goes
// out.
func (v *windows) forget(t *state.Track) {
	if t.Win != nil {
		v.drop(t)
	}
}
