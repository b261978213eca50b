package delivery

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claimsOwed is how many bytes of the edge's own frames a connection may owe before states of its
// claims wait, of which the last alone counts then.
const claimsOwed = 16 << 10

// claimState answers a request with what is so, and notes what the connection is told from now on.
func (h *Hub) claimState(c *conn, a claimAsked, st *wirev1.ClaimState) {
	k := c.claims
	has := st.GetState() == wirev1.ClaimState_STATE_GRANTED || st.GetState() == wirev1.ClaimState_STATE_QUEUED
	one := k.find(a.resource)
	if one == nil && (has || a.op == wirev1.Claim_OP_WATCH) {
		k.of = append(k.of, claim{resource: a.resource, id: a.id})
		h.stats.Claims++
		one = &k.of[len(k.of)-1]
	}
	if one != nil {
		h.tellClaim(c, one) // what was so before is told before
		switch a.op {
		case wirev1.Claim_OP_ACQUIRE, wirev1.Claim_OP_CHECK:
			one.id, one.place = a.id, has
		case wirev1.Claim_OP_WATCH:
			one.id, one.place, one.watched = a.id, has, true
		case wirev1.Claim_OP_LEAVE:
			one.place, one.watched = has, false
		case wirev1.Claim_OP_RELEASE:
			// of a token that was not that of the hold it changes nothing, whatever it tells
			one.place = one.place && st.GetState() != wirev1.ClaimState_STATE_RELEASED
		case wirev1.Claim_OP_RENEW:
			one.place = has
		}
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, stateWith(a.id, st))
	h.dropClaim(c, one)
}

// claimTold tells of a change. Where the client does not take what it is owed, only the last state
// of a resource waits for it, but for the end of a place.
func (h *Hub) claimTold(c *conn, st *wirev1.ClaimState) {
	one := c.claims.find(st.GetResource())
	if one == nil {
		h.stats.StaleEvents++
		return
	}
	ended := false
	switch st.GetState() {
	case wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED:
		one.place = true
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED:
		one.place, ended = false, true
	case wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER:
		if !one.watched {
			h.stats.StaleEvents++
			return
		}
	}
	if one.unsent == nil {
		c.claims.unsent++
	}
	one.unsent = st
	// A place ends once for each that was asked for, and nothing is asked for by who takes no
	// answers.
	if ended || c.out.control <= claimsOwed {
		h.tellClaim(c, one)
	}
	h.dropClaim(c, one)
}

// tellClaims tells what waits, once the client takes what it is owed.
func (h *Hub) tellClaims(c *conn) {
	k := c.claims
	for i := 0; i < len(k.of) && k.unsent > 0 && c.out.control <= claimsOwed; i++ {
		h.tellClaim(c, &k.of[i])
	}
}

// tellClaim tells what of one resource waits.
func (h *Hub) tellClaim(c *conn, one *claim) {
	if st := one.unsent; st != nil {
		one.unsent = nil
		c.claims.unsent--
		h.stats.ClaimPushes++
		h.control(c, wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, stateWith(one.id, st))
	}
}

// dropClaim forgets a resource that the connection has no place at and does not watch. one may be
// nil.
func (h *Hub) dropClaim(c *conn, one *claim) {
	if one == nil || one.place || one.watched {
		return
	}
	k := c.claims
	if one.unsent != nil {
		k.unsent--
	}
	h.stats.Claims--
	i := slices.IndexFunc(k.of, func(o claim) bool { return o.resource == one.resource })
	k.of = slices.Delete(k.of, i, i+1)
}

// stateWith is the state under an id: st itself is shared.
func stateWith(id uint32, st *wirev1.ClaimState) *wirev1.ClaimState {
	return &wirev1.ClaimState{
		Id: id, Resource: st.GetResource(), State: st.GetState(), Token: st.GetToken(), Position: st.GetPosition(), ExpiresAt: st.GetExpiresAt(), Holder: st.GetHolder(),
		PollAfterMs: st.GetPollAfterMs(), ExpiresInMs: st.GetExpiresInMs(), Code: st.GetCode(), Holding: st.GetHolding(), Waiting: st.GetWaiting(),
	}
}

func retryAfter(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

// claimed counts a request.
func (s *Stats) claimed(op wirev1.Claim_Op, c wirev1.Code) {
	if op >= 0 && op < ClaimOps {
		s.ClaimRequests[op].add(c, 1)
	}
}
