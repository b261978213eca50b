package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// window holds a track's messages from when they are queued until they are ACKed, in seq order. It
// is borrowed from the hub while there are any.
type window struct {
	entries []entry
	head    int
	parked  []uint64 // left un-ACKed by timeout and wait for the session's next connection
}

// entry is one message. A nil m is a place whose message is settled.
type entry struct {
	m       *exchange.Message
	seq     uint64
	due     int64 // 0: not with the client, or on its way again
	attempt uint16
	sends   uint8 // on this connection
	queued  bool
	nacked  bool
}

// windowKept is how long a window may be, and windowsKept how many there may be, to be used again.
const (
	windowKept  = 64
	windowsKept = 16 << 10
)

func (w *window) live() []entry { return w.entries[w.head:] }

// find is the entry of seq; nil where there is none.
func (w *window) find(seq uint64) *entry {
	live := w.live()
	i, ok := slices.BinarySearchFunc(live, seq, func(e entry, seq uint64) int {
		switch {
		case e.seq < seq:
			return -1
		case e.seq > seq:
			return 1
		}
		return 0
	})
	if !ok || live[i].m == nil {
		return nil
	}
	return &live[i]
}

// lastSent is the highest seq that has left for the client; 0 where none has.
func (w *window) lastSent() uint64 {
	for i := len(w.entries) - 1; i >= w.head; i-- {
		if e := &w.entries[i]; e.m != nil && e.sends > 0 {
			return e.seq
		}
	}
	return 0
}

// windows follow messages from when they are queued until they are ACKed.
type windows struct {
	hub  *Hub
	free []*window // that no track uses
}

// opened puts a message that was just queued into the windows.
func (v *windows) opened(t *track, m *exchange.Message, attempt uint16) {
	if t.win == nil {
		more := v.hub.tracks.more(t)
		if n := len(v.free); n > 0 {
			more.win, v.free = v.free[n-1], v.free[:n-1]
		} else {
			more.win = &window{}
		}
	}
	w := t.win
	if w.head > 0 && len(w.entries) == cap(w.entries) {
		n := copy(w.entries, w.entries[w.head:])
		clear(w.entries[n:])
		w.entries, w.head = w.entries[:n], 0
	}
	at := len(w.entries)
	for at > w.head && w.entries[at-1].seq > m.Seq { // ranked ones come in any order
		at--
	}
	e := entry{m: m, seq: m.Seq, attempt: attempt, queued: true}
	if at > w.head && w.entries[at-1].seq == m.Seq { // it was taken back, and left its place
		w.entries[at-1] = e
	} else {
		w.entries = slices.Insert(w.entries, at, e)
	}
	v.counted(t, 1)
}

func (v *windows) counted(t *track, sign int) {
	t.unacked += uint32(sign)
	t.c.unacked += uint32(sign)
	v.hub.stats.Unacked += int64(sign)
}

// leaves takes an entry out of the windows.
func (v *windows) leaves(t *track, e *entry) {
	if e.queued && e.sends > 0 {
		v.killAgain(t, e.seq)
	}
	e.m = nil
	v.counted(t, -1)
	w := t.win
	for w.head < len(w.entries) && w.entries[w.head].m == nil {
		w.head++
	}
	for len(w.entries) > w.head && w.entries[len(w.entries)-1].m == nil {
		w.entries = w.entries[:len(w.entries)-1]
	}
	if w.head == len(w.entries) {
		w.entries, w.head = w.entries[:0], 0
		v.give(t)
	}
	v.hub.waker.wake(t.c)
}

// give returns an empty window to the hub. Large ones are left to the collector.
func (v *windows) give(t *track) {
	w := t.win
	if len(w.parked) > 0 {
		return
	}
	v.hub.tracks.more(t).win = nil
	v.hub.tracks.less(t)
	if cap(w.entries) <= windowKept && len(v.free) < windowsKept {
		w.parked = nil
		v.free = append(v.free, w)
	}
}

// unopened takes out a message that was queued and will not be sent now.
func (v *windows) unopened(t *track, seq uint64) {
	if t.win == nil {
		return
	}
	if e := t.win.find(seq); e != nil && e.sends == 0 {
		v.leaves(t, e)
	}
}

// killAgain drops a queued redelivery.
func (v *windows) killAgain(t *track, seq uint64) {
	q := &t.c.out
	for i := range q.Len() {
		if it := q.At(i); it.Stream() == &t.Stream && it.Kind() == sendq.Message && it.Again() && it.Message().Seq == seq && !q.Begun(i) {
			v.hub.looked(int(i))
			q.Drop(i)
			q.Tidy()
			return
		}
	}
	v.hub.looked(int(q.Len()))
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
	e := t.win.find(m.Seq)
	if e == nil || e.m != m {
		return
	}
	e.queued, e.nacked = false, false
	e.sends = min(e.sends+1, 254)
	e.due = v.hub.now + int64(v.hub.topics.policy(t.topic).AckTimeout)
	v.hub.wheel.Sooner(c.slot, e.due)
}

// overdue does what must happen to a message that was not ACKed in time, or whose Nack's delay is
// over.
func (v *windows) overdue(t *track, e *entry) {
	p, c := v.hub.topics.policy(t.topic), t.c
	attempts := uint32(e.attempt) + 1
	switch {
	case e.m.ExpiresAt != 0 && e.m.ExpiresAt <= v.hub.wall:
		v.hub.replay.exhausted(t, e.m, attempts, wirev1.Code_CODE_EXPIRED)
		v.leaves(t, e)
	case t.cur != nil && attempts >= p.MaxAttempts:
		v.hub.replay.exhausted(t, e.m, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		v.leaves(t, e)
	case uint32(e.sends) > p.MaxRedeliveries:
		v.park(t, e, attempts)
		if c.timedOut >= c.window {
			v.hub.fail(c, wirev1.Code_CODE_ACK_TIMEOUT, "a window's worth of messages was not ACKed in time")
		}
	case !v.hub.fitsBudget(c, len(e.m.Frame)+c.out.Extra(1)):
		v.hub.wait(t, e)
	default:
		e.attempt, e.due, e.queued = e.attempt+1, 0, true
		it := sendq.Redelivery(e.m, &t.Stream, t.kind != kindPlain, e.attempt)
		v.hub.push(c, &it)
		v.hub.sessions.cursorChanged(t)
	}
}

// park has a message wait for the session's next connection; without a session it is let go.
func (v *windows) park(t *track, e *entry, attempts uint32) {
	v.hub.stats.AckTimeouts++
	if t.cur != nil {
		t.cur.Attempted(e.seq, attempts)
		v.hub.sessions.cursorChanged(t)
	}
	if !e.nacked {
		t.c.timedOut++
		t.win.parked = append(t.win.parked, e.seq)
	}
	v.leaves(t, e)
}

// drop lets go of everything un-ACKed. How often a session's were attempted is kept in its
// cursor.
func (v *windows) drop(t *track) {
	w := t.win
	if w == nil {
		return
	}
	for i := range w.live() {
		e := &w.live()[i]
		if e.m == nil {
			continue
		}
		v.noteAttempts(t, e)
		v.counted(t, -1)
	}
	v.hub.looked(len(w.entries))
	t.c.timedOut -= min(t.c.timedOut, uint32(len(w.parked)))
	clear(w.entries)
	w.entries, w.head, w.parked = w.entries[:0], 0, nil
	v.give(t)
	v.hub.waker.wake(t.c)
}

func (v *windows) noteAttempts(t *track, e *entry) {
	if t.cur == nil || e.m.Epoch != t.cur.Epoch {
		return
	}
	n := uint32(e.attempt)
	if !e.queued {
		n++
	}
	t.cur.Attempted(e.seq, n)
}

// forget lets go of what an epoch that is over left un-ACKed; what is queued still goes
// out.
func (v *windows) forget(t *track) {
	if t.win != nil {
		v.drop(t)
	}
}

func (w *window) unpark(through bool, seq uint64) (n int) {
	kept := w.parked[:0]
	for _, p := range w.parked {
		if p == seq || through && p < seq {
			n++
			continue
		}
		kept = append(kept, p)
	}
	w.parked = kept
	return n
}
