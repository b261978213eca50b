package hub

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// drainPatience is how long a connection has for ACKs of what it was sent before GOAWAY.
const drainPatience = 2 * time.Second

// drain is the planned stop of the loop: GOAWAY for everyone, ACKs are waited for a while, sessions are saved, connections closed.
type drain struct {
	exchange.Drain
	next     uint32 // slot that has not been told
	all      bool   // everyone was
	saving   int    // last saves that are not answered
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
	h.jobs.push(drainAll{})
}

// Draining says that no connection is accepted any more.
func (h *Hub) Draining() bool { return h.drain != nil }

// drainAll tells everyone, some at a time.
type drainAll struct{}

func (drainAll) step(h *Hub) bool {
	d := h.drain
	for range fanSlice {
		if d.next >= h.conns.len() {
			d.all = true
			return true
		}
		if c := h.conns.get(d.next); c.state != stateFree && c.state != stateClosing {
			h.drainConn(c)
		}
		d.next++
	}
	return false
}

func (h *Hub) drainConn(c *conn) {
	d := h.drain
	if c.state != stateOpen {
		if c.state != stateWaiting { // one that waits for its session is told with Welcome
			h.fail(c, wirev1.Code_CODE_DRAINING, "the edge is stopping")
		}
		return
	}
	if c.draining {
		return
	}
	c.draining = true
	if len(c.groups) > 0 {
		h.jobs.push(&pausing{c: c, gen: c.gen, left: len(c.groups)})
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, &wirev1.GoAway{
		Code: wirev1.Code_CODE_DRAINING, Reason: "the edge is stopping", ReconnectAfterMs: rand.Uint32N(d.JitterMS + 1), Addresses: d.Addresses,
	})
	c.deadline = min(h.now+int64(drainPatience), d.deadline-int64(2*Tick))
	h.wheel.Set(c.slot, h.now+int64(Tick))
}

// pausing tells the dispatchers of a connection's groups that it takes nothing more, one after the other.
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
	h.pauseGroup(j.c.groups[j.left])
	return false
}

// drainStep closes a draining connection once it owes nothing and is owed nothing.
func (h *Hub) drainStep(c *conn) {
	if h.now < c.deadline && (c.unacked > 0 || c.out.n > 0) {
		h.wheel.Sooner(c.slot, h.now+int64(Tick))
		return
	}
	if c.sess != nil && !c.detached {
		h.drain.saving++
		h.letGo(c, detachRef)
	}
	h.close(c, wirev1.Code_CODE_DRAINING, "the edge is stopping")
}

func (h *Hub) drainSaved() {
	if d := h.drain; d != nil && d.saving > 0 {
		d.saving--
	}
}

// Drained says whether the planned stop has come to its end, once; the loop asks every turn.
func (h *Hub) Drained() bool {
	d := h.drain
	if d == nil || d.ended {
		return false
	}
	if h.now < d.deadline && (!d.all || d.saving > 0 || h.stats.Connections > 0) {
		return false
	}
	d.ended = true
	if d.Done != nil {
		d.Done()
	}
	return true
}
