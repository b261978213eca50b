package delivery

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
)

// maxOwner is how long the name of a successor may be.
const maxOwner = 255

// claim hands a request on to the stores.
func (h *Hub) claim(c *conn, m *wirev1.Claim) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.checkClaim(c, m); why != nil {
		h.rooms.claims.Stats().Count(m.GetOp(), why.Code)
		h.refuse(c, m.GetId(), why)
		return
	}
	h.more(c).claims = h.rooms.claims.Ask(c.claims, h.handle(c), h.connID(c), c.user(), m)
}

// checkClaim is what is wrong with a request. Bounds of times are the store's to check.
func (h *Hub) checkClaim(c *conn, m *wirev1.Claim) *code.Error {
	invalid := func(text string) *code.Error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, text) }
	ends := m.GetOp() == wirev1.Claim_OP_RELEASE
	switch {
	case c.inUse(m.GetId()):
		return invalid("the id is in use")
	case m.GetOp() < 0 || m.GetOp() >= claims.Ops:
		return invalid("there is no such op")
	case (ends || m.GetOp() == wirev1.Claim_OP_RENEW) && m.GetToken() == 0:
		return invalid("the token is missing")
	case m.GetSuccessor() != "" && !ends:
		return invalid("a successor goes with RELEASE")
	case len(m.GetSuccessor()) > maxOwner || hasControl(m.GetSuccessor()):
		return invalid("a successor has 255 bytes at most, and no control characters")
	case m.GetPriority() > policy.MaxPriority:
		return invalid("priorities are 0 to 9")
	case c.backend:
		return code.New(wirev1.Code_CODE_UNSUPPORTED, "backends claim with ClaimService")
	}
	if why := checkTopic(m.GetResource()); why != nil {
		return why
	}
	if m.GetResource()[0] == '$' {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, "names of the mesh's own are no resources")
	}
	if why := h.cfg.Refuses(m.GetResource()); why != nil {
		// nobody must take that for an end, and give up what it holds
		return why
	}
	p := h.cfg.PolicyFor(m.GetResource()).Claims
	switch {
	case !p.Clients:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "clients may not claim resources of this namespace")
	case m.GetPriority() > p.MaxClientPriority:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "the priority is above what clients may ask for")
	case c.draining && m.GetOp() == wirev1.Claim_OP_ACQUIRE:
		return code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")
	}
	return c.claims.Full(m)
}

// endClaims is for a connection that closes.
func (h *Hub) endClaims(c *conn) {
	if c.claims != nil {
		h.rooms.claims.End(c.claims)
		h.more(c).claims = nil
	}
}
