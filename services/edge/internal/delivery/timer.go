package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
)

// timers does what is due for a connection, sets its next time, and says how many tracks and
// messages it has looked at.
func (h *Hub) timers(c *state.Conn) (cost int) {
	switch {
	case c.Phase == state.Closing:
		if h.now >= c.Deadline {
			h.conns.MarkDirty(c) // the loop ends the socket
			return 0
		}
	case c.Phase == state.Waiting && c.Session == nil && h.now >= c.Deadline:
		h.fail(c, wirev1.Code_CODE_UNAVAILABLE, "the token could not be checked in time")
	case c.Phase == state.Waiting && h.now >= c.Deadline:
		h.fail(c, wirev1.Code_CODE_UNAVAILABLE, "the session could not be attached in time")
	case c.Phase != state.Open && h.now >= c.Deadline:
		h.fail(c, wirev1.Code_CODE_HANDSHAKE_TIMEOUT, "Hello has not come in time")
	case c.Phase == state.Open && h.now >= c.SilentUntil(h.now, h.ms):
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "nothing was heard for 2.5 heartbeats")
	case c.Phase == state.Open && h.now >= h.rooms.principals.EndsAt(c.Slot):
		h.failErr(c, h.rooms.principals.Expired())
	case c.Draining:
		h.goes(c)
	}
	next := c.Deadline
	if c.Phase == state.Open {
		next, cost = h.openTimers(c)
	}
	if c.Phase != state.Free {
		h.wheel.Sooner(c.Slot, next)
	}
	return cost
}

// openTimers does what is due in an open connection and says when the next thing is.
func (h *Hub) openTimers(c *state.Conn) (next int64, cost int) {
	next = min(c.SilentUntil(h.now, h.ms), h.rooms.principals.EndsAt(c.Slot))
	if c.Deadline != 0 {
		next = min(next, c.Deadline)
	}
	if next = h.dripping(c, next); c.Phase != state.Open {
		return c.Deadline, 0
	}
	at, cost := h.visit(c)
	next = min(next, at, h.signOfLife(c))
	if s := c.Session; s != nil && c.Phase == state.Open {
		if at := s.SaveAt(); at != 0 && h.now >= at {
			h.sessions.save(c)
		}
		if at := s.SaveAt(); at != 0 {
			next = min(next, at)
		}
	}
	return next, cost
}

// signOfLife asks for one where that is due, and says when to look again.
func (h *Hub) signOfLife(c *state.Conn) (next int64) {
	next, byFrame := h.conns.SignOfLife(c, h.now, h.ms)
	if byFrame {
		h.control(c, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: h.wall})
	}
	return next
}

// timerSlice is how many tracks and messages in their windows are looked at in one go.
const timerSlice = 128

// visit is a walk over the tracks of a connection, then over its groups, for what is due, from the
// last to the first: what takes the place of a track that goes meanwhile was looked at, or will be.
// Whatever begins to wait meanwhile sets the connection's time itself.
type visit struct {
	c         *state.Conn
	gen       uint32 // of the connection
	remaining int    // tracks
	groups    int
	in        state.TrackRef
	seq       uint64 // of the track in hand, the message to go on from
	next      int64
}

// visit does what is due in the connection's tracks and groups, or begins to. It says when the next
// thing is, as far as it has come: who goes on sets the time of the rest.
func (h *Hub) visit(c *state.Conn) (next int64, cost int) {
	v := visit{c: c, gen: c.Gen, remaining: c.Tracks.Len(), groups: len(c.Groups), next: c.SilentUntil(h.now, h.ms)}
	if c.Visited || h.rooms.permissions.Waits(c.Slot) {
		// a visit is under way, and may be past what is due now; or its ACKs are not read yet
		return h.now + int64(Tick), 0
	}
	cost, done := v.slice(h)
	if !done {
		c.Visited = true
		rest := v
		h.jobs.Push(&rest)
	}
	return v.next, cost
}

func (v *visit) step(h *Hub) bool {
	c := v.c
	if c.Gen != v.gen {
		return true
	}
	if _, done := v.slice(h); !done {
		return false
	}
	c.Visited = false
	if c.Phase == state.Open {
		h.wheel.Sooner(c.Slot, v.next)
	}
	return true
}

// slice looks at some more, and says at how much and whether that was the end.
func (v *visit) slice(h *Hub) (n int, done bool) {
	c := v.c
	for ; n < timerSlice; n += h.takeCost() {
		v.remaining = min(v.remaining, c.Tracks.Len())
		v.groups = min(v.groups, len(c.Groups))
		if c.Phase != state.Open || v.remaining+v.groups == 0 {
			return n, true
		}
		if v.remaining == 0 {
			v.groups--
			g := c.Groups[v.groups]
			n += 1 + len(g.Live())/4
			v.next = h.groups.timers(g, v.next)
			continue
		}
		t := c.Tracks.At(v.remaining - 1)
		if v.in.Get() != t {
			v.in, v.seq = t.Ref(), 0
			h.trackTimers(v, t)
		}
		looked, done := v.messages(h, t, timerSlice-n)
		n += looked + 1
		if done {
			v.remaining--
		}
	}
	return n, false
}

// trackTimers does what is due in a track, but for its messages.
func (h *Hub) trackTimers(v *visit, t *state.Track) {
	if t.RetryAt != 0 {
		if h.now >= t.RetryAt {
			if t.Few {
				h.tracks.More(t).RetryAt = 0
			} else {
				h.replay.noRetry(t)
			}
			h.gaps.tryLatest(t)
			h.replay.enqueue(t)
		} else {
			v.next = min(v.next, t.RetryAt)
		}
	}
	if t.Gap.IsOpen() {
		if h.now >= t.Gap.Due {
			h.gaps.reportGap(t, 0)
		} else {
			v.next = min(v.next, t.Gap.Due)
		}
	}
}

// messages looks at some in the track's window.
func (v *visit) messages(h *Hub, t *state.Track, most int) (n int, done bool) {
	w := t.Win
	if w == nil {
		return 0, true
	}
	for i := w.From(v.seq); t.Win == w && i < w.End() && t.Conn.Phase == state.Open; i++ {
		e := w.At(i)
		if n += h.takeCost(); n >= most {
			v.seq = e.Seq
			return n, false
		}
		n++
		if e.Message != nil && e.Due != 0 && h.now >= e.Due {
			h.windows.overdue(t, e)
		}
		if e.Message != nil && e.Due != 0 {
			v.next = min(v.next, e.Due)
		}
	}
	return n, true
}
