package subscribe

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

func nobody(interest.Edge) bool { return false }

// An edge that sends clients away is the last choice for a while, however few connections it has,
// and not after that; nor is its next life.
func TestEdgesThatSendClientsAwayComeLast(t *testing.T) {
	home := func(id string, connections uint32) interest.Home {
		return interest.Home{Edge: interest.Edge{ID: id, Incarnation: 1}, Connections: connections}
	}
	var s senders
	began := time.Now()
	s.note(interest.Edge{ID: "a", Incarnation: 1}, began)
	homes := []interest.Home{home("a", 0), home("b", 1000)}
	last := began.Add(sendsFor - 1)
	for range 50 {
		if got := order(homes, s.now(last)); len(got) != 2 || got[0].ID != "b" || got[1].ID != "a" {
			t.Fatalf("order: %v", got)
		}
		if got := order(homes, s.now(last.Add(1))); got[0].ID != "a" {
			t.Fatalf("order, later: %v", got)
		}
		if got := order(homes[:1], s.now(last)); len(got) != 1 {
			t.Fatalf("the only edge is not tried: %v", got)
		}
		homes := []interest.Home{{Edge: interest.Edge{ID: "a", Incarnation: 2}}, homes[1]}
		if got := order(homes, s.now(last)); got[0].ID != "a" {
			t.Fatalf("another life is blamed: %v", got)
		}
	}
	// No more tries are made because of them, and those that send nobody away have them first.
	var many []interest.Home
	for i := range 10 {
		many = append(many, home(fmt.Sprint("e", i), 0))
		if i >= 3 {
			s.note(many[i].Edge, last)
		}
	}
	got := order(many, s.now(last))
	if len(got) != tries || got[3].ID < "e3" || max(got[0].ID, got[1].ID, got[2].ID) > "e2" {
		t.Errorf("order of many: %v", got)
	}
	if s.note(homes[1].Edge, last.Add(sendsFor)); len(s.until) != 1 {
		t.Errorf("it remembers %v", s.until)
	}
}

// A stream that a share of an edge's connections is handed on with goes on at another edge,
// although the one that sent it away goes on taking connections and has the fewest. So does a
// stream that its backend opens anew.
func TestAStreamSentAwayDoesNotComeBack(t *testing.T) {
	for _, move := range []bool{true, false} {
		t.Run(fmt.Sprint("move ", move), func(t *testing.T) {
			w := newWorld(t, nil)
			first := w.edge("e1")
			c := w.open(hello(&wirev1.Hello{Session: "main"}, move))
			p := first.welcome(11)
			c.must()
			second := w.edge("e2")
			homes := w.Homes()
			homes[1].Connections = 1000
			w.live(homes...)
			p.send(frameGoAway, &wirev1.GoAway{Code: wirev1.Code_CODE_DRAINING, ReconnectAfterMs: 1})
			if move {
				p.hungUp()
			} else {
				if c.must().GetGoAway() == nil {
					t.Fatal("a stream without move is not told")
				}
				_ = p.conn.Close()
				c.ends(wirev1.Code_CODE_DRAINING)
				c = w.open(hello(&wirev1.Hello{Session: "main"}, move))
			}
			second.welcome(12)
			if got := c.must().GetWelcome(); got.GetEdge() != "e2" {
				t.Errorf("it goes on with %v", got)
			}
		})
	}
}
