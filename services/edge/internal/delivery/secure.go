package delivery

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// Secured says that the connection has TLS, and that hands are shaken.
func (h *Hub) Secured(slot uint32) { h.conns.more(h.conns.get(slot)).secure = true }

// Sealed says how many bytes of ciphertext wait for the connection's socket. They count as queued:
// the frames in them have left the queue.
func (h *Hub) Sealed(slot uint32, n int) {
	c := h.conns.get(slot)
	less := n < int(c.sealed)
	h.queues.AddBytes(n - int(c.sealed))
	if n > 0 || c.sealed > 0 {
		h.conns.more(c).sealed = uint32(n)
		h.conns.less(c)
	}
	if less {
		h.wakeDrained(c)
	}
}

// Cut closes a connection that can't be told why: nothing can be read of it any more, nor sealed
// for it.
func (h *Hub) Cut(slot uint32, why wirev1.Code, text string) { h.close(h.conns.get(slot), why, text) }
