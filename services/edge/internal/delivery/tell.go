package delivery

import (
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
)

// What happens to connections and subscriptions is told where somebody wants to know: a record of
// bounded size goes into the loop's ring, which allocates nothing. Everything else about events is
// done elsewhere.

// connID names a connection, here and in what is told of it. It is made of what names its slot, so
// that it takes no memory.
func (h *Hub) connID(c *conn) uint64 {
	id := h.idSeed ^ (uint64(c.slot)<<32 | uint64(c.gen))
	id = (id ^ id>>33) * 0xff51afd7ed558ccd // the finalizer of MurmurHash3
	id = (id ^ id>>33) * 0xc4ceb9fe1a85ec53
	return (id ^ id>>33) | 1
}

// tell completes a record about a connection.
func (h *Hub) tell(c *conn, r *eventring.Record) {
	r.At, r.Conn, r.ClientID, r.Backend = h.wall, h.connID(c), c.clientID, c.backend
	if c.sess != nil {
		r.User, r.Session = c.sess.user, c.sess.name
	}
	h.cfg.Events.Put(r)
}

func (h *Hub) tellConnect(c *conn, resumed bool) {
	if h.told.Has(events.Connect) {
		h.tell(c, &eventring.Record{Kind: events.Connect, Flag: resumed})
	}
}

func (h *Hub) tellDisconnect(c *conn, why wirev1.Code, reason string) {
	if h.told.Has(events.Disconnect) {
		h.tell(c, &eventring.Record{Kind: events.Disconnect, Code: int32(why), Reason: reason})
	}
}

func (h *Hub) tellSubscribe(c *conn, filter, group string, ack bool) {
	if h.told.Has(events.Subscribe) {
		h.tell(c, &eventring.Record{Kind: events.Subscribe, Name: filter, Group: group, Flag: ack})
	}
}

func (h *Hub) tellUnsubscribe(c *conn, filter, group string, why wirev1.Code, reason string) {
	if h.told.Has(events.Unsubscribe) {
		h.tell(c, &eventring.Record{Kind: events.Unsubscribe, Name: filter, Group: group, Code: int32(why), Reason: reason})
	}
}

// tellDelivered says that a message was ACKed, in a namespace that asks for that.
func (h *Hub) tellDelivered(t *track, seq uint64) {
	if h.told.Has(events.Delivered) && h.policy(t.topic).DeliveredEvents {
		h.tell(t.c, &eventring.Record{Kind: events.Delivered, Name: t.topic.name, Epoch: t.epoch, Seq: seq})
	}
}

func (h *Hub) tellSlow(c *conn, percent int) {
	h.tell(c, &eventring.Record{Kind: events.SlowConsumer, Code: int32(percent), Epoch: uint64(c.out.Messages()), Seq: uint64(c.out.Bytes())})
}
