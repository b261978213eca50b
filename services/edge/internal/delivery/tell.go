package delivery

import (
	"github.com/pushmesh/pushmesh/internal/events"
)

// connID names a connection, here and in what is told of it. It is made of what names its slot, so
// that it takes no memory.
func (h *Hub) connID(c *conn) uint64 {
	id := h.idSeed ^ (uint64(c.slot)<<32 | uint64(c.gen))
	id = (id ^ id>>33) * 0xff51afd7ed558ccd // the finalizer of MurmurHash3
	id = (id ^ id>>33) * 0xc4ceb9fe1a85ec53
	return (id ^ id>>33) | 1
}

// tellDelivered reports that a message was ACKed, in a namespace that asks for that.
func (h *Hub) tellDelivered(t *track, seq uint64) {
	if h.rooms.report.Wants(events.Delivered) && h.topics.policy(t.topic).DeliveredEvents {
		h.rooms.report.Delivered(h.handle(t.c), t.topic.name, "", t.epoch, seq)
	}
}

// tellSlow says that a connection's queue has reached so many per cent of its bound.
func (h *Hub) tellSlow(c *conn, percent int) {
	h.rooms.report.Slow(h.handle(c), percent, uint64(c.out.Messages()), uint64(c.out.Bytes()))
}
