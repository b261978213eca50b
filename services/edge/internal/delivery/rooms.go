package delivery

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
)

// rooms are features of the loop with a state of their own.
type rooms struct {
	claims *claims.Desk
}

func newRooms(h *Hub) rooms {
	p := port{h}
	return rooms{claims: claims.New(p, h.mesh)}
}

// port is the hub as its rooms see it: each declares the part that it needs. Handles are of
// connections that have not ended.
type port struct{ h *Hub }

func (p port) conn(at exchange.Conn) *conn { return p.h.conns.get(at.Slot) }

// ControlBytes implements claims.Delivery.
func (p port) ControlBytes(at exchange.Conn) int { return p.conn(at).out.Answers() }

// ClaimState implements claims.Delivery.
func (p port) ClaimState(at exchange.Conn, st *wirev1.ClaimState) {
	p.h.control(p.conn(at), wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, st)
}

// RefuseRequest implements claims.Delivery.
func (p port) RefuseRequest(at exchange.Conn, ref uint32, why *code.Error) {
	p.h.refuse(p.conn(at), ref, why)
}

// Policy implements membership.Delivery.
func (p port) Policy(topic string) *policy.Policy { return p.h.cfg.PolicyFor(topic) }

// Acknowledged implements membership.Delivery.
func (p port) Acknowledged(m *membership.Member, msg *exchange.Message) {
	if p.h.told.Has(events.Delivered) {
		p.h.tell(p.conn(m.Conn), &eventring.Record{Kind: events.Delivered, Name: msg.Topic, Group: m.Group, Epoch: msg.Epoch, Seq: msg.Seq})
	}
}
