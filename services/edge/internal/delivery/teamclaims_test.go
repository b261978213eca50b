package delivery

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

type teams struct{ list *team.List }

func (t *teams) Fault() *code.Error { return nil }
func (t *teams) List() *team.List   { return t.list }

func (t *teams) are(version uint64, users ...string) {
	all := []*meshv1.TeamEntry{{Team: &pushmeshv1.Team{Name: "crew", Claim: []string{"seat/#"}, Subscribe: []string{"room/#"}}}}
	for _, user := range users {
		all = append(all, &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: "crew"}, User: user})
	}
	t.list = team.NewList(version, all...)
}

// Who is taken out of a team keeps no claim for longer than its TTL: neither what it holds nor what
// it is offered in a line can be renewed. It may give them up.
func TestClaimsOfWhoLeftATeam(t *testing.T) {
	w := claimWorld(t)
	d, in := &door{w: w, of: map[string]*identity.Principal{}}, &teams{}
	in.are(1, "ann")
	w.lets(principals.Config{Door: d, Teams: in})
	d.knows("t", "ann")
	c := w.connect(&wirev1.Hello{Token: "t", ClientId: "phone"})
	c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	c.expect("ClaimState 1 seat/1 GRANTED token=1")
	w.answers(queued, 1)
	c.claim(&wirev1.Claim{Id: 2, Resource: "seat/2"})
	c.expect("ClaimState 2 seat/2 QUEUED 1")
	in.are(2)
	w.h.Event(exchange.TeamsChanged{})
	w.settle()
	w.tells(&wirev1.ClaimState{Resource: "seat/2", State: granted, Token: 7})
	c.expect("ClaimState 2 seat/2 GRANTED token=7")
	asked := len(w.mesh.Claims.Asked)
	for i, op := range []wirev1.Claim_Op{wirev1.Claim_OP_RENEW, wirev1.Claim_OP_ACQUIRE, wirev1.Claim_OP_CHECK, wirev1.Claim_OP_WATCH} {
		for j, m := range []*wirev1.Claim{{Resource: "seat/1", Token: 1}, {Resource: "seat/2", Token: 7}} {
			m.Id, m.Op = uint32(10+2*i+j), op
			c.claim(m)
			c.expect(fmt.Sprint("Error FORBIDDEN ref=", m.Id))
		}
	}
	if n := len(w.mesh.Claims.Asked); n != asked {
		t.Errorf("the stores were asked %d times", n-asked)
	}
	w.answers(released, 0)
	c.claim(&wirev1.Claim{Id: 20, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 1})
	c.expect("ClaimState 20 seat/1 RELEASED token=1")
}
