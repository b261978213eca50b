package hub

// A socket is stuck while the kernel takes nothing for it. What the kernel holds by then counts for the connection, as the loop measures it: when the socket gets
// stuck, and once in a while as long as it is.

// Stuck says that the kernel takes nothing for a connection that is owed something, and how many bytes it holds for it in both directions.
func (h *Hub) Stuck(slot uint32, kernel int) {
	c := h.conns.get(slot)
	o := c.out
	if o == noOutbox || c.ended {
		return
	}
	if !o.stuck {
		o.stuck = true
		h.stats.Stuck++
	}
	h.stats.KernelBytes += int64(kernel - o.kernel)
	h.charge(o, kernel-o.kernel)
	o.kernel = kernel
	h.deepens(c)
}

// Unstuck says that the kernel takes bytes again.
func (h *Hub) Unstuck(slot uint32) {
	c := h.conns.get(slot)
	if !c.out.stuck {
		return
	}
	h.unstick(c)
	if c.waiting > 0 && h.drained(c) {
		h.wake(c)
	}
}

// unstick forgets that the socket is stuck.
func (h *Hub) unstick(c *conn) {
	o := c.out
	if !o.stuck {
		return
	}
	o.stuck = false
	h.stats.Stuck--
	h.stats.KernelBytes -= int64(o.kernel)
	h.charge(o, -o.kernel)
	if o.kernel = 0; o.n == 0 {
		h.giveOutbox(c)
	}
}
