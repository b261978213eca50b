package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A claim that is held by an answer which is good still is renewed by that, though the cache has
// let it go and nobody answers.
func TestAClaimIsRenewedByTheAnswerThatItHas(t *testing.T) {
	w, _, p := permitted(t, map[string]time.Duration{"claim seat/1": 10 * time.Second})
	w.answers(granted, 0)
	w.mesh.Claims.Answer = func(op *meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource(), State: granted, Token: 42}}
	}
	c := w.ann()
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	p.answer(nil, c)
	p.refuses = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "down")
	began := w.now
	for id := uint32(2); ; id++ {
		w.pass(500 * time.Millisecond)
		c.got = nil
		c.claim(&wirev1.Claim{Id: id, Op: wirev1.Claim_OP_RENEW, Resource: "seat/1", Token: 42})
		c.take()
		if _, is := c.got[0].m.(*wirev1.ClaimState); !is {
			break
		}
	}
	// not while it could not begin anew: see TestAKnownAnswerThatEndsSoonIsAskedAgain
	if lasts := time.Duration(w.now - began); lasts < 9*time.Second || lasts > 11*time.Second {
		t.Fatalf("it was renewed for %s", lasts)
	}
	c.got = nil
	c.expect()
}
