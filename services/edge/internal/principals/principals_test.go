package principals

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// users knows every token: it is the user's name.
type users struct{ grants *identity.Grants }

func (u users) Asks() bool { return false }

func (u users) Identify(_ exchange.Conn, s Shown) (*identity.Principal, *code.Error, bool) {
	return &identity.Principal{User: s.Token, Grants: u.grants, Expires: time.Unix(7200, 0)}, nil, true
}

func (u users) Nameless() *code.Error { return nil }

func granted(t testing.TB, filters ...string) *identity.Grants {
	t.Helper()
	var rules []identity.Rule
	for _, f := range filters {
		rules = append(rules, identity.Rule{Verb: identity.Subscribe, Filter: f})
	}
	g, err := identity.NewGrants(rules)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func table(door Door) *Table {
	return New(Config{Door: door}, nil, &walk.Jobs{}, &walk.Cost{}, func() (int64, uint64) { return 0, 3600e6 }, func(uint32) string { return "" })
}

// 100,000 connections whose tokens grant the same have 64 bytes each, their names among them.
func TestWhatAConnectionsPrincipalTakes(t *testing.T) {
	const n, most = 100_000, 64
	x := table(users{granted(t, "room/+/chat", "team/{user}/#", "news/#")})
	for i := range n {
		if _, _, why := x.Hello(exchange.Conn{Slot: uint32(i)}, &wirev1.Hello{Token: fmt.Sprint("user-", i)}, exchange.Plain); why != nil {
			t.Fatal(why)
		}
	}
	if each := x.Memory() / n; each > most || each < 32 {
		t.Errorf("a connection has %d bytes", each)
	}
	if len(x.grants.all) != 2 || x.Stats().Known != n {
		t.Errorf("%d sets of rules for %d users", len(x.grants.all)-1, x.Stats().Known)
	}
	for i := range n {
		x.Gone(uint32(i))
	}
	if x.Stats().Known != 0 || x.Taken() != 0 || x.grants.all[1].grants != nil {
		t.Errorf("%d users and %d names are left", x.Stats().Known, x.Taken())
	}
	runtime.KeepAlive(x)
}

// Whatever comes and goes, each has the grants it was given, and nothing is left in the end.
func TestGrantsAreCounted(t *testing.T) {
	all := []*identity.Grants{nil, granted(t, "a"), granted(t, "b"), granted(t, "c")}
	rapid.Check(t, func(t *rapid.T) {
		s, has := newGrants(), map[uint32]*identity.Grants{}
		var holders []struct {
			place uint32
			g     *identity.Grants
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(holders) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(holders)-1).Draw(t, "which")
				s.release(holders[i].place)
				holders[i] = holders[len(holders)-1]
				holders = holders[:len(holders)-1]
			} else {
				g := rapid.SampledFrom(all).Draw(t, "grants")
				place := s.hold(g, team.Set{})
				holders = append(holders, struct {
					place uint32
					g     *identity.Grants
				}{place, g})
			}
			clear(has)
			for _, h := range holders {
				if s.at(h.place) != h.g {
					t.Fatalf("place %d has other grants", h.place)
				}
				has[h.place] = h.g
			}
			if len(s.all) > len(all) {
				t.Fatalf("%d places for %d grants", len(s.all), len(all))
			}
		}
		for _, h := range holders {
			s.release(h.place)
		}
		if len(s.places) != 0 {
			t.Fatalf("%d grants are held by nobody", len(s.places))
		}
	})
}
