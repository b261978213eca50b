package hub

import (
	"math"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// timers does what is due for a connection, and sets its next time.
func (h *Hub) timers(c *conn) {
	switch {
	case c.state == stateClosing:
		if h.now >= c.deadline {
			h.markDirty(c) // the loop ends the socket
			return
		}
	case c.state == stateWaiting && h.now >= c.deadline:
		h.fail(c, wirev1.Code_CODE_UNAVAILABLE, "the session could not be attached in time")
	case c.state != stateOpen && h.now >= c.deadline:
		h.fail(c, wirev1.Code_CODE_HANDSHAKE_TIMEOUT, "Hello has not come in time")
	case c.state == stateOpen && h.now >= c.heard+c.patience():
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "nothing was heard for 2.5 heartbeats")
	case c.state == stateOpen && c.draining:
		h.drainStep(c)
	}
	next := c.deadline
	if c.state == stateOpen {
		next = h.openTimers(c)
	}
	if c.state != stateFree {
		h.wheel.Sooner(c.slot, next)
	}
}

// openTimers does what is due in an open connection and says when the next thing is.
func (h *Hub) openTimers(c *conn) (next int64) {
	next = c.heard + c.patience()
	if c.deadline != 0 {
		next = min(next, c.deadline)
	}
	for _, t := range c.tracks() {
		if c.state != stateOpen {
			break
		}
		next = min(next, h.trackTimers(t))
	}
	if s := c.sess; s != nil && c.state == stateOpen {
		if s.saveAt != 0 && h.now >= s.saveAt {
			h.save(c)
		}
		if s.saveAt != 0 {
			next = min(next, s.saveAt)
		}
	}
	return next
}

func (h *Hub) trackTimers(t *track) (next int64) {
	next = math.MaxInt64
	if t.retryAt != 0 {
		if h.now >= t.retryAt {
			h.noRetry(t)
			h.run(t)
		} else {
			next = t.retryAt
		}
	}
	if t.holeTo != 0 {
		if h.now >= t.holeDue {
			h.nameHole(t)
		} else {
			next = min(next, t.holeDue)
		}
	}
	if w := t.win; w != nil {
		for i := w.head; t.win == w && i < len(w.entries) && t.c.state == stateOpen; i++ {
			e := &w.entries[i]
			if e.m != nil && e.due != 0 && h.now >= e.due {
				h.overdue(t, e)
			}
			if e.m != nil && e.due != 0 {
				next = min(next, e.due)
			}
		}
	}
	return next
}
