package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
)

// Late says that the loop is, or was until now, so late (linkhealth.TooLate) that what clients and
// the kernel measure may be the edge's doing.
func (h *Hub) Late() { h.links.Late(h.now) }

// heartbeat judges the link by what a Ping brings: the client's report, in microseconds, of the
// Ping before, 0 for none, and what the kernel knows.
func (h *Hub) heartbeat(c *state.Conn, reported uint32) {
	if h.cfg.Unhealthy == linkhealth.Off || c.Phase != state.Open || c.Draining {
		return
	}
	path := h.cfg.Path(c.Slot)
	if h.links.Heartbeat(&c.Link, linkhealth.Heartbeat{
		Now: h.now, Every: time.Duration(c.Heartbeat) * time.Millisecond, Reported: reported, RTT: path.RTT, Queued: c.Out.Messages() > 0 || path.Unsent > 0,
	}) {
		h.fail(c, wirev1.Code_CODE_UNHEALTHY, "three round trips in a row were far beyond those before")
	}
}

// A socket is stalled while the kernel takes nothing for it. What the kernel holds by then counts
// for the connection, as the loop measures it: when the socket stalls, and once in a while as long
// as it is stalled. One whose client takes nothing at all for StuckTimeout is closed: what is
// un-ACKed, and what is claimed, is for others then. A client that reads, however slowly, is not.

// stalledAgain is when a connection is judged again that was spared.
const stalledAgain = 10 * time.Second

// Held is what the kernel knows of a socket that is stalled.
type Held struct {
	Memory int    // bytes of the kernel's memory, in both directions
	Taken  uint64 // bytes that the peer has acknowledged since it connected; 0: unknown
}

// Stalled says that the kernel takes nothing for a connection that has something queued, and what
// it holds for it.
func (h *Hub) Stalled(slot uint32, held Held) {
	c := h.conns.Get(slot)
	if c.Out.IsEmpty() || c.Ended {
		return
	}
	idle := c.Out.Stall(h.now, held.Memory, held.Taken)
	h.warnSlow(c)
	switch {
	case idle < h.lim.StuckTimeout || c.Phase != state.Open || c.Draining:
	case h.links.Stalled(h.now, c.Out.TurnLate()):
		h.cut(c, wirev1.Code_CODE_SLOW_CONSUMER, "the client took nothing of what was sent to it for --stuck-timeout")
	default:
		c.Out.StalledSince(h.now - int64(h.lim.StuckTimeout) + int64(stalledAgain))
	}
}

// StallEnded says that the kernel takes bytes again.
func (h *Hub) StallEnded(slot uint32) {
	c := h.conns.Get(slot)
	if !c.Out.IsStalled() {
		return
	}
	c.Out.Resume()
	h.wakeDrained(c)
}

// warnSlow tells of a connection whose socket is stalled and whose queue has reached another level.
// One that keeps up, however much it is sent at once, is not told of.
func (h *Hub) warnSlow(c *state.Conn) {
	if level, raised := c.Out.Level(); raised {
		h.rooms.report.Slow(h.handle(c), h.now, level, uint64(c.Out.Messages()), uint64(c.Out.Bytes()))
	}
}
