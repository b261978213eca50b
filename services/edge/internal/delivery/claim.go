package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	// maxClaims is how many resources a connection may have a place at or watch, those that it asks
	// for now among them.
	maxClaims = 64
	// maxClaimsAsked is how many of its requests may be unanswered.
	maxClaimsAsked = 16
	maxOwner       = 255
	// claimsRefused is when to try again what is beyond these.
	claimsRefused = 10 * Tick
)

// claims is what a connection claims: the resources that it is told of, and its requests that are
// not answered. One that has claimed has it until it ends: an answer that did not come may have
// tied a place to it.
type claims struct {
	of    []claim
	asked []claimAsked
	// unsent of the resources have a state that waits until the client takes what it is owed.
	unsent int
}

// claim is a resource at which the connection's owner has a place, or that it watches, or both.
type claim struct {
	resource string
	id       uint32 // of the request that pushes are told under
	place    bool
	watched  bool
	unsent   *wirev1.ClaimState // nil: what is known was told
}

type claimAsked struct {
	id       uint32
	op       wirev1.Claim_Op
	resource string
}

// find is nil where the connection is told nothing of a resource. It is good until a claim is added
// or removed. k may be nil, as in asks and waits.
func (k *claims) find(resource string) *claim {
	if k == nil {
		return nil
	}
	for i := range k.of {
		if k.of[i].resource == resource {
			return &k.of[i]
		}
	}
	return nil
}

// asks reports whether an id is of a request that is not answered.
func (k *claims) asks(id uint32) bool { return k != nil && k.asking(id) >= 0 }

func (k *claims) asking(id uint32) int {
	return slices.IndexFunc(k.asked, func(a claimAsked) bool { return a.id == id })
}

// waits reports whether anything is unanswered.
func (k *claims) waits() bool { return k != nil && len(k.asked) > 0 }

// claim hands a request on to the stores.
func (h *Hub) claim(c *conn, m *wirev1.Claim) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.checkClaim(c, m); why != nil {
		h.stats.claimed(m.GetOp(), why.Code)
		h.refuse(c, m.GetId(), why)
		return
	}
	more := h.more(c)
	if more.claims == nil {
		more.claims = &claims{}
	}
	more.claims.asked = append(more.claims.asked, claimAsked{m.GetId(), m.GetOp(), m.GetResource()})
	h.mesh.Claim(h.handle(c), m.GetId(), &meshv1.ClaimOp{
		Kind: meshv1.ClaimOp_Kind(m.GetOp()), Resource: m.GetResource(), Owner: c.user(), Token: m.GetToken(), TtlMs: m.GetTtlMs(), Priority: m.GetPriority(),
		Successor: m.GetSuccessor(), WaitMs: m.GetWaitMs(), NoWait: m.GetNoWait(), Conn: h.connID(c), Bound: true,
	})
}

// checkClaim is what is wrong with a request. Bounds of times are the store's to check.
func (h *Hub) checkClaim(c *conn, m *wirev1.Claim) *code.Error {
	invalid := func(text string) *code.Error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, text) }
	ends := m.GetOp() == wirev1.Claim_OP_RELEASE
	switch {
	case c.inUse(m.GetId()):
		return invalid("the id is in use")
	case m.GetOp() < 0 || m.GetOp() >= ClaimOps:
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
	return c.claims.full(m)
}

// full is a refusal where the connection has as many requests or resources as it may.
func (k *claims) full(m *wirev1.Claim) *code.Error {
	if k == nil {
		return nil
	}
	if len(k.asked) >= maxClaimsAsked {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, Tick, "more claims are unanswered than a connection may have")
	}
	ends := m.GetOp() == wirev1.Claim_OP_RELEASE || m.GetOp() == wirev1.Claim_OP_LEAVE
	if !ends && len(k.of)+len(k.asked) >= maxClaims && k.find(m.GetResource()) == nil {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, claimsRefused, "the connection claims as many resources as it may")
	}
	return nil
}

// endClaims is for a connection that closes.
func (h *Hub) endClaims(c *conn) {
	if k := c.claims; k != nil {
		h.mesh.EndClaims(h.connID(c))
		h.stats.Claims -= int64(len(k.of))
		h.more(c).claims = nil
	}
}

// claimed answers a request.
func (h *Hub) claimed(c *conn, e exchange.Claimed) {
	i := -1
	if c.claims != nil {
		i = c.claims.asking(e.ID)
	}
	if i < 0 {
		h.stats.StaleEvents++
		return
	}
	k, r := c.claims, e.Result
	a := k.asked[i]
	k.asked = slices.Delete(k.asked, i, i+1)
	if r.GetCode() == wirev1.Code_CODE_OK {
		h.stats.claimed(a.op, r.GetState().GetCode())
		h.claimState(c, a, r.GetState())
	} else {
		h.stats.claimed(a.op, r.GetCode())
		h.refuse(c, a.id, &code.Error{Code: r.GetCode(), Message: r.GetError(), RetryAfter: retryAfter(r.GetRetryAfterMs())})
	}
}
