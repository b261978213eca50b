package delivery

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// timers does what is due for a connection, sets its next time, and says how many tracks and
// messages it has looked at.
func (h *Hub) timers(c *conn) (cost int) {
	switch {
	case c.state == stateClosing:
		if h.now >= c.deadline {
			h.conns.markDirty(c) // the loop ends the socket
			return 0
		}
	case c.state == stateWaiting && h.now >= c.deadline:
		h.fail(c, wirev1.Code_CODE_UNAVAILABLE, "the session could not be attached in time")
	case c.state != stateOpen && h.now >= c.deadline:
		h.fail(c, wirev1.Code_CODE_HANDSHAKE_TIMEOUT, "Hello has not come in time")
	case c.state == stateOpen && h.now >= h.silentUntil(c):
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "nothing was heard for 2.5 heartbeats")
	case c.draining:
		h.goes(c)
	}
	next := c.deadline
	if c.state == stateOpen {
		next, cost = h.openTimers(c)
	}
	if c.state != stateFree {
		h.wheel.Sooner(c.slot, next)
	}
	return cost
}

// openTimers does what is due in an open connection and says when the next thing is.
func (h *Hub) openTimers(c *conn) (next int64, cost int) {
	next = h.silentUntil(c)
	if c.deadline != 0 {
		next = min(next, c.deadline)
	}
	if next = h.dripping(c, next); c.state != stateOpen {
		return c.deadline, 0
	}
	at, cost := h.visit(c)
	next = min(next, at)
	if s := c.sess; s != nil && c.state == stateOpen {
		if at := s.SaveAt(); at != 0 && h.now >= at {
			h.sessions.save(c)
		}
		if at := s.SaveAt(); at != 0 {
			next = min(next, at)
		}
	}
	return next, cost
}

// timerSlice is how many tracks and messages in their windows are looked at in one go.
const timerSlice = 128

// visit is a walk over the tracks of a connection, then over its groups, for what is due, from the
// last to the first: what takes the place of a track that goes meanwhile was looked at, or will be.
// Whatever begins to wait meanwhile sets the connection's time itself.
type visit struct {
	c         *conn
	gen       uint32 // of the connection
	remaining int    // tracks
	groups    int
	in        trackRef
	seq       uint64 // of the track in hand, the message to go on from
	next      int64
}

// visit does what is due in the connection's tracks and groups, or begins to. It says when the next
// thing is, as far as it has come: who goes on sets the time of the rest.
func (h *Hub) visit(c *conn) (next int64, cost int) {
	v := visit{c: c, gen: c.gen, remaining: c.tracks.Len(), groups: len(c.groups), next: h.silentUntil(c)}
	if c.visited {
		return h.now + int64(Tick), 0 // a visit is under way, and may be past what is due now
	}
	cost, done := v.slice(h)
	if !done {
		c.visited = true
		rest := v
		h.jobs.Push(&rest)
	}
	return v.next, cost
}

func (v *visit) step(h *Hub) bool {
	c := v.c
	if c.gen != v.gen {
		return true
	}
	if _, done := v.slice(h); !done {
		return false
	}
	c.visited = false
	if c.state == stateOpen {
		h.wheel.Sooner(c.slot, v.next)
	}
	return true
}

// slice looks at some more, and says at how much and whether that was the end.
func (v *visit) slice(h *Hub) (n int, done bool) {
	c := v.c
	for ; n < timerSlice; n += h.takeCost() {
		v.remaining = min(v.remaining, c.tracks.Len())
		v.groups = min(v.groups, len(c.groups))
		if c.state != stateOpen || v.remaining+v.groups == 0 {
			return n, true
		}
		if v.remaining == 0 {
			v.groups--
			g := c.groups[v.groups]
			n += 1 + len(g.Live())/4
			v.next = h.groups.timers(g, v.next)
			continue
		}
		t := c.tracks.At(v.remaining - 1)
		if v.in.get() != t {
			v.in, v.seq = t.ref(), 0
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
func (h *Hub) trackTimers(v *visit, t *track) {
	if t.retryAt != 0 {
		if h.now >= t.retryAt {
			if t.few {
				h.tracks.more(t).retryAt = 0
			} else {
				h.replay.noRetry(t)
			}
			h.gaps.tryLatest(t)
			h.replay.enqueue(t)
		} else {
			v.next = min(v.next, t.retryAt)
		}
	}
	if t.gap.IsOpen() {
		if h.now >= t.gap.Due {
			h.gaps.reportGap(t, 0)
		} else {
			v.next = min(v.next, t.gap.Due)
		}
	}
}

// messages looks at some in the track's window.
func (v *visit) messages(h *Hub, t *track, most int) (n int, done bool) {
	w := t.win
	if w == nil {
		return 0, true
	}
	for i := w.From(v.seq); t.win == w && i < w.End() && t.c.state == stateOpen; i++ {
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
