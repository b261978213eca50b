package delivery

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// A frame that has begun must come to its end in time: one that drips in holds memory, and bytes
// alone break the silence. Hello has the handshake's time.

// unfinished notes that so many bytes of a frame have come, and not all.
func (h *Hub) unfinished(c *conn, n int) {
	if n == 0 || c.begun != 0 || c.state != stateOpen {
		return
	}
	h.conns.more(c).begun = h.now
	h.wheel.Sooner(c.slot, h.now+int64(h.lim.FrameTimeout))
}

// finished notes that a frame has come whole.
func (h *Hub) finished(c *conn) {
	if c.begun != 0 {
		h.conns.more(c).begun = 0
		h.conns.less(c)
	}
}

// Unread says that the loop does not read the connection for a while: that time is not the
// client's.
func (h *Hub) Unread(slot uint32) {
	c := h.conns.get(slot)
	c.heard = h.ms
	if c.begun != 0 {
		h.conns.more(c).begun = h.now
	}
}

// Unlimited says that the connection is a backend's, which rates of clients are not for.
func (h *Hub) Unlimited(slot uint32) bool { return h.conns.get(slot).backend }

// dripping does what is due about a frame that has begun, and says when something is next.
func (h *Hub) dripping(c *conn, next int64) int64 {
	if c.begun == 0 {
		return next
	}
	if h.holds(c) {
		h.conns.more(c).begun = h.now
	}
	due := c.begun + int64(h.lim.FrameTimeout)
	if h.now >= due {
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "a frame that has begun did not come whole in time")
	}
	return min(next, due)
}
