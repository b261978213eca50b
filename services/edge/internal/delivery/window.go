package delivery

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/unacked"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
)

const (
	// refillSlice is how many messages of a window are looked at where a range has come.
	refillSlice = 1024
	// failedReads is how often in a row a released message is asked for that can't be read, about
	// once a second, before the window lets go of it.
	failedReads = 30
)

// windows follow messages from when they are queued until they are ACKed.
type windows struct {
	hub   *Hub
	pool  unacked.Pool
	again replay.Again[state.TrackRef] // released, and due
}

// add puts a message that was just queued into the windows.
func (v *windows) add(t *state.Track, m *exchange.Message, attempt uint16) {
	if t.Win == nil {
		v.hub.tracks.More(t).Win = v.pool.Take()
	}
	t.Win.Add(m, attempt)
	v.counted(t, 1, unacked.Kept(m))
}

func (v *windows) counted(t *state.Track, n, bytes int) {
	t.Unacked += uint32(n)
	t.Conn.Unacked += uint32(n)
	v.hub.stats.Unacked += int64(n)
	v.hub.kept.Charge(t.Conn.Slot, bytes)
}

// remove takes an entry out of the windows.
func (v *windows) remove(t *state.Track, e *unacked.Entry) {
	if e.Queued && e.Sends > 0 {
		v.killAgain(t, e.Seq)
	}
	bytes := unacked.Kept(e.Message)
	t.Win.Remove(e)
	v.counted(t, -1, -bytes)
	v.giveEmpty(t)
	v.hub.waker.Wake(t.Conn)
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
	v.letGo(t, e)
}

// letGo has the window keep the seq of a message alone, where its bytes are more than it may keep.
func (v *windows) letGo(t *state.Track, e *unacked.Entry) {
	if !v.hub.kept.WindowsFit(t.Conn.Slot) {
		v.hub.stats.Released++
		v.counted(t, 0, -t.Win.Release(e))
	}
}

// fetch has the log asked for a message that is due and was released, and for what follows it. What
// does not come is asked for again when it is looked at next; where the log can't be read for long,
// it is parked, as one that is sent in vain.
func (v *windows) fetch(t *state.Track, e *unacked.Entry) {
	if t.Win.Want(e) >= failedReads {
		v.park(t, e, uint32(e.Attempt)+1)
		return
	}
	v.hub.wait(t, e)
	if name := t.Topic.Name(); !t.Win.Fetching {
		t.Win.Fetching = true
		if name = strings.Clone(name); v.again.Wait(name, e.Seq, t.Ref()) {
			v.hub.stats.LogReads++
			v.hub.mesh.Read(v.hub.cfg.Loop, name, t.Epoch, e.Seq, 0, v.hub.lim.ReadBytes)
		}
	}
}

// refilling gives a range to those who wait for released messages of it, some at a time.
type refilling struct {
	e       *exchange.Range
	waiting []state.TrackRef
}

func (j *refilling) step(h *Hub) bool {
	for n := 0; n < fanSlice && len(j.waiting) > 0; n += 1 + h.takeCost() {
		t := j.waiting[0].Get()
		if j.waiting = j.waiting[1:]; t != nil && t.Win != nil {
			h.windows.refill(t, t.Win, j.e)
		}
	}
	return len(j.waiting) == 0
}

// refill goes on with the released messages of a track that are due, as far as a range of the log
// says what became of them. One that retention took is lost; where the log has begun anew, all are.
func (v *windows) refill(t *state.Track, w *unacked.Window, e *exchange.Range) {
	w.Fetching, w.Failing = false, e.Err != nil || e.Epoch != t.Epoch
	switch {
	case t.Conn.Phase != state.Open:
		return
	case e.Epoch > t.Epoch && !t.Told.Any() && (e.Err == nil || code.Of(e.Err) == wirev1.Code_CODE_EPOCH_CHANGED):
		v.hub.newEpoch(t, e.Epoch, 0)
		v.hub.fallBehind(t)
		return
	case w.Failing:
		return
	}
	last := e.Oldest - 1
	if n := len(e.Messages); n > 0 {
		last = e.Messages[n-1].Seq
	}
	open := func() bool { return t.Win == w && t.Conn.Phase == state.Open }
	for i, n := w.From(e.From), 0; open() && i < w.End() && n < refillSlice && w.At(i).Seq <= last; i, n = i+1, n+1 {
		v.hub.addCost(itemsPerUnit)
		x := w.At(i)
		if x.Message == nil || !x.Wanted {
			continue
		}
		if m, _ := ranked.Find(e, x.Seq); m != nil {
			v.counted(t, 0, w.Refill(x, m))
			if v.overdue(t, x); t.Win == w && x.Message == m && !x.Queued { // it waits
				v.letGo(t, x)
			}
			continue
		}
		v.lost(t, x)
	}
}

// lost ends the wait for a message that was sent and can't be sent again, for retention took it.
// Of a session it would become a dead letter some time, so that the client is told; without one it
// is let go as if it had been sent as often as it may be.
func (v *windows) lost(t *state.Track, e *unacked.Entry) {
	if t.Cursor == nil {
		v.park(t, e, uint32(e.Attempt)+1)
		return
	}
	v.hub.stats.Drops.Add(wirev1.Code_CODE_RETENTION, 1)
	t.Cursor.Settle(e.Seq, e.Seq)
	v.hub.sessions.cursorChanged(t)
	v.hub.control(t.Conn, wirev1.FrameType_FRAME_TYPE_PROGRESS, v.hub.gaps.progress(t, e.Seq, e.Seq, wirev1.Code_CODE_RETENTION))
	v.remove(t, e)
}

// overdue does what must happen to a message that was not ACKed in time, or whose Nack's delay is
// over.
func (v *windows) overdue(t *state.Track, e *unacked.Entry) {
	p, c := v.hub.topics.Policy(t.Topic), t.Conn
	attempts := uint32(e.Attempt) + 1
	switch {
	case t.Win.IsReleased(e):
		v.fetch(t, e)
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
	case !v.hub.fitsBudget(c, len(e.Message.Frame)+c.Out.Extra(1)):
		v.hub.wait(t, e)
	default:
		e.Again()
		it := sendq.Redelivery(e.Message, &t.Stream, t.Kind != state.KindPlain, e.Attempt)
		v.hub.push(c, &it)
		v.hub.sessions.cursorChanged(t)
	}
}

// park has a message wait for the session's next connection; without a session it is let go. After
// a window's worth of them the connection ends.
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
	if c := t.Conn; c.TimedOut >= c.Window {
		v.hub.fail(c, wirev1.Code_CODE_ACK_TIMEOUT, "a window's worth of messages was not ACKed in time")
	}
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
	v.counted(t, -int(t.Unacked), -w.Bytes())
	v.hub.addCost(w.End())
	t.Conn.TimedOut -= min(t.Conn.TimedOut, uint32(w.Parked()))
	w.Clear()
	v.giveEmpty(t)
	v.hub.waker.Wake(t.Conn)
}
