package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claim hands a request on to the stores.
func (h *Hub) claim(c *conn, m *wirev1.Claim) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.rules.Claim(c.asking(m.GetId()), c.claims, m); why != nil {
		h.rooms.claims.Stats().Count(m.GetOp(), why.Code)
		h.refuse(c, m.GetId(), why)
		return
	}
	h.conns.more(c).claims = h.rooms.claims.Ask(c.claims, h.handle(c), h.connID(c), c.user(), m)
}

// endClaims is for a connection that closes.
func (h *Hub) endClaims(c *conn) {
	if c.claims != nil {
		h.rooms.claims.End(c.claims)
		h.conns.more(c).claims = nil
	}
}
