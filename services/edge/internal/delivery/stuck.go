package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
)

// A socket is stuck while the kernel takes nothing for it. What the kernel holds by then counts for
// the connection, as the loop measures it: when the socket gets stuck, and once in a while as long
// as it is. One whose client takes nothing at all for StuckTimeout is closed: what is un-ACKed, and
// what is claimed, is for others then. A client that reads, however slowly, is not.

// stuckAgain is when a connection is judged again that was spared.
const stuckAgain = 10 * time.Second

// Held is what the kernel knows of a socket that is stuck.
type Held struct {
	Memory int    // bytes of the kernel's memory, in both directions
	Taken  uint64 // bytes that the peer has acknowledged since it connected; 0: unknown
}

// Stuck says that the kernel takes nothing for a connection that has something queued, and what it
// holds for it.
func (h *Hub) Stuck(slot uint32, held Held) {
	c := h.conns.get(slot)
	if c.out.IsEmpty() || c.ended {
		return
	}
	idle := c.out.Stall(h.now, held.Memory, held.Taken)
	h.warnSlow(c)
	if idle >= h.lim.StuckTimeout && c.state == stateOpen && !c.draining {
		h.tookNothing(c)
	}
}

// tookNothing closes a connection whose client has taken nothing for long, as far as such closes
// are allowed: many at a time are the edge's or the network's doing.
func (h *Hub) tookNothing(c *conn) {
	if c.out.TurnLate() {
		h.cfg.Gate.Turned(h.now)
	}
	if why := h.cfg.Gate.Close(h.now); why != linkhealth.None {
		h.stats.SparedStuck[why]++
		c.out.StalledSince(h.now - int64(h.lim.StuckTimeout) + int64(stuckAgain))
		return
	}
	h.stats.StuckCloses++
	h.cut(c, wirev1.Code_CODE_SLOW_CONSUMER, "the client took nothing of what was sent to it for --stuck-timeout")
}

// Unstuck says that the kernel takes bytes again.
func (h *Hub) Unstuck(slot uint32) {
	c := h.conns.get(slot)
	if !c.out.IsStalled() {
		return
	}
	c.out.Resume()
	h.wakeDrained(c)
}
