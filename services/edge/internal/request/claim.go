package request

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
)

// maxOwner is how long the name of a successor may be.
const maxOwner = 255

// Claim checks a Claim of a connection that claims what held says. Bounds of times are the store's
// to check.
func (r *Rules) Claim(c Client, held *claims.Held, m *wirev1.Claim) *code.Error {
	ends := m.GetOp() == wirev1.Claim_OP_RELEASE
	givesUp := ends || m.GetOp() == wirev1.Claim_OP_LEAVE // what one may always
	switch {
	case c.IDInUse:
		return idInUse
	case m.GetOp() < 0 || m.GetOp() >= claims.Ops:
		return invalid("op is not one that this edge knows")
	case (ends || m.GetOp() == wirev1.Claim_OP_RENEW) && m.GetToken() == 0:
		return invalid("token is missing: the answer that granted the claim has it")
	case m.GetSuccessor() != "" && !ends:
		return invalid("successor is for RELEASE only")
	case len(m.GetSuccessor()) > maxOwner || HasControl(m.GetSuccessor()):
		return invalid("successor must be at most 255 bytes long, without control characters")
	case m.GetPriority() > policy.MaxPriority:
		return invalid("priority must be 0 to 9")
	case c.Backend:
		return unsupported("backends claim with ClaimService, not over a stream of SubscribeService")
	}
	if why := Topic(m.GetResource()); why != nil {
		return why
	}
	if m.GetResource()[0] == '$' {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, "names that begin with $ are the mesh's own and can't be claimed")
	}
	if why := r.Refuses(m.GetResource()); why != nil {
		// nobody must take that for an end, and give up what it holds
		return why
	}
	if !givesUp {
		if why := c.ungranted(identity.Claim, "", m.GetResource()); why != nil {
			return why
		}
	}
	p := r.PolicyFor(m.GetResource()).Claims
	switch {
	case !p.Clients:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "clients may not claim resources of this namespace")
	case m.GetPriority() > p.MaxClientPriority:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "the priority is above what clients may ask for")
	case c.Draining && m.GetOp() == wirev1.Claim_OP_ACQUIRE:
		return stopping
	}
	if why := held.Full(m); why != nil {
		return why
	}
	return c.permitted(m.GetResource(), "")
}
