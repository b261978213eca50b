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

// Who is taken out of a team, or comes with a token that grants less, waits in no line for what
// that let it claim, and watches it no more. What it holds it can give up, and not renew.
func TestClaimsOfWhoLeftATeam(t *testing.T) {
	for what, end := range map[string]func(*world, *door, *teams, *client){
		"a team": func(w *world, _ *door, in *teams, _ *client) {
			in.are(2)
			w.h.Event(exchange.TeamsChanged{})
			w.settle()
		},
		"a token": func(_ *world, d *door, _ *teams, c *client) {
			d.knows("less", "ann", "claim:seat/9")
			c.refresh(9, "less")
			c.take()
			c.got = c.got[1:] // Refreshed
		},
	} {
		w := claimWorld(t)
		d, in := &door{w: w, of: map[string]*identity.Principal{}}, &teams{}
		w.lets(principals.Config{Door: d, Teams: in})
		if in.are(1); what == "a team" {
			in.are(1, "ann")
			d.knows("t", "ann", "claim:seat/9")
		} else {
			d.knows("t", "ann", "claim:seat/#")
		}
		c := w.connect(&wirev1.Hello{Token: "t", ClientId: "phone"})
		c.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
		c.expect("ClaimState 1 seat/1 GRANTED token=1")
		c.claim(&wirev1.Claim{Id: 2, Resource: "seat/1", Op: wirev1.Claim_OP_WATCH})
		c.expect("ClaimState 2 seat/1 GRANTED token=2")
		w.answers(queued, 1)
		for i, resource := range []string{"seat/2", "seat/9"} {
			c.claim(&wirev1.Claim{Id: uint32(3 + i), Resource: resource})
			c.expect(fmt.Sprint("ClaimState ", 3+i, " ", resource, " QUEUED 1"))
		}
		w.answers(free, 0)
		c.claim(&wirev1.Claim{Id: 5, Resource: "seat/3", Op: wirev1.Claim_OP_WATCH})
		c.expect("ClaimState 5 seat/3 FREE")
		asked := w.mesh.Claims.Asked
		w.answers(released, 0)
		end(w, d, in, c)
		c.expect("ClaimState 5 seat/3 LOST FORBIDDEN")
		if ops := w.mesh.Claims.Asked[len(asked):]; len(ops) != 1 || ops[0].GetKind() != meshv1.ClaimOp_KIND_LEAVE || ops[0].GetResource() != "seat/2" || ops[0].GetOwner() != "ann/phone" {
			t.Fatalf("%s: the stores are asked %v", what, ops)
		}
		w.mesh.TellClaim(asked[2], &wirev1.ClaimState{Resource: "seat/2", State: released})
		w.mesh.TellClaim(asked[4], &wirev1.ClaimState{Resource: "seat/3", State: taken})
		w.mesh.TellClaim(asked[3], &wirev1.ClaimState{Resource: "seat/9", State: queued, Position: 2})
		w.settle()
		c.take()
		c.expect("ClaimState 3 seat/2 RELEASED", "ClaimState 4 seat/9 QUEUED 2")
		c.claim(&wirev1.Claim{Id: 10, Resource: "seat/1", Op: wirev1.Claim_OP_RENEW, Token: 2})
		c.expect("Error FORBIDDEN ref=10")
		c.claim(&wirev1.Claim{Id: 11, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: 2})
		c.expect("ClaimState 11 seat/1 RELEASED token=2")
	}
}
