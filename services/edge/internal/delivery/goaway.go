package delivery

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// askToGo sends GOAWAY to an open connection: from here on it gets no first delivery, and is closed
// once it has ACKed what it was sent, at until at the latest. One that was asked before is closed
// at until if that is sooner.
func (h *Hub) askToGo(c *conn, m *wirev1.GoAway, until int64) {
	if c.draining {
		c.deadline = min(c.deadline, until)
		return
	}
	c.draining = true
	if len(c.groups) > 0 {
		h.jobs.Push(&pausing{c: c, gen: c.gen, left: len(c.groups)})
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, m)
	c.deadline = until
	h.wheel.Set(c.slot, h.now+int64(Tick))
}

// turnAway closes a connection with GOAWAY alone.
func (h *Hub) turnAway(c *conn, m *wirev1.GoAway) {
	c.out.KeepAnswers()
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, m)
	h.close(c, wirev1.Code_CODE_DRAINING, m.GetReason())
}

// pausing tells the dispatchers of a connection's groups that it takes nothing more, one after the
// other.
type pausing struct {
	c    *conn
	gen  uint32
	left int
}

func (j *pausing) step(h *Hub) bool {
	if j.left = min(j.left, len(j.c.groups)); j.c.gen != j.gen || j.c.state != stateOpen || j.left == 0 {
		return true
	}
	j.left--
	h.groups.pause(j.c.groups[j.left])
	return false
}

// goes closes a connection that was asked to go once nothing is queued for it, un-ACKed or
// unanswered.
func (h *Hub) goes(c *conn) {
	if h.now < c.deadline && (c.unacked > 0 || c.out.Len() > 0 || c.claims.Waits()) {
		h.wheel.Sooner(c.slot, h.now+int64(Tick))
		return
	}
	if h.rooms.departure.Stopping() && c.sess != nil && !c.detached {
		h.rooms.departure.Saving()
		h.sessions.letGo(c, detachRef)
	}
	h.close(c, wirev1.Code_CODE_DRAINING, h.rooms.departure.Reason())
}

// Draining reports whether no connection is accepted any more.
func (h *Hub) Draining() bool { return h.rooms.departure.Stopping() }

// Drained reports whether the planned stop has come to its end, once; the loop asks every turn.
func (h *Hub) Drained() bool { return h.rooms.departure.Ended() }
