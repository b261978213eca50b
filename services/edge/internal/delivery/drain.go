package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// drainPatience is how long a connection has for ACKs of what it was sent before GOAWAY.
const drainPatience = 2 * time.Second

const stopping = "the edge is stopping"

// drain is the planned stop of the loop: GOAWAY for everyone, over a time; ACKs are waited for a
// while, sessions are saved, connections closed.
type drain struct {
	exchange.Drain
	told     bool // everyone was
	saving   int  // last saves that are not answered
	deadline int64
	ended    bool
}

func (h *Hub) beginDrain(e exchange.Drain) {
	if h.drain != nil {
		if e.Done != nil {
			e.Done()
		}
		return
	}
	h.drain = &drain{Drain: e, deadline: h.now + int64(e.DeadlineMS)*int64(time.Millisecond)}
	h.sendAway(departure{
		going: goAway{reason: stopping, jitterMS: e.JitterMS, addresses: e.Addresses}, over: int64(e.SpreadMS) * int64(time.Millisecond),
		wanted: int(h.stats.Connections), all: true, done: func() { h.drain.told = true },
	})
}

// Draining says that no connection is accepted any more.
func (h *Hub) Draining() bool { return h.drain != nil }

// turnAway is for newcomers while the loop drains.
func (h *Hub) turnAway(c *conn) {
	c.out.KeepAnswers()
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, (&goAway{reason: stopping, jitterMS: h.drain.JitterMS, addresses: h.drain.Addresses}).frame())
	h.close(c, wirev1.Code_CODE_DRAINING, stopping)
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

// drainStep closes a connection that was told to go once nothing is un-ACKed or queued.
func (h *Hub) drainStep(c *conn) {
	if h.now < c.deadline && (c.unacked > 0 || c.out.Len() > 0 || c.claims.Waits()) {
		h.wheel.Sooner(c.slot, h.now+int64(Tick))
		return
	}
	why := "it was told to go elsewhere"
	if h.drain != nil {
		why = stopping
		if c.sess != nil && !c.detached {
			h.drain.saving++
			h.sessions.letGo(c, detachRef)
		}
	}
	h.close(c, wirev1.Code_CODE_DRAINING, why)
}

func (h *Hub) drainSaved() {
	if d := h.drain; d != nil && d.saving > 0 {
		d.saving--
	}
}

// Drained reports whether the planned stop has come to its end, once; the loop asks every turn.
func (h *Hub) Drained() bool {
	d := h.drain
	if d == nil || d.ended {
		return false
	}
	if h.now < d.deadline && (!d.told || d.saving > 0 || h.stats.Connections > 0) {
		return false
	}
	d.ended = true
	if d.Done != nil {
		d.Done()
	}
	return true
}
