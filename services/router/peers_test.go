package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/services/router/internal/peers"
)

// another makes m's router hear of one more, which leaves when the test ends.
func (m *mesh) another(tb testing.TB, id string) *peers.Peers {
	tb.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	b := bus.New(bus.Config{URL: m.nats.ClientURL(), Name: id, Mesh: meshidtest.Identity(), Log: log})
	p := peers.New(peers.Config{
		ID: id, Incarnation: 7, Version: "v9", Addresses: func() (string, string) { return "10.0.0.9:7401", "10.0.0.9:7481" }, Bus: b, Log: log,
	})
	if err := b.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "connects", b.Check)
	if err := p.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
		if err := b.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	m.count(tb, 2)
	eventually(tb, "the other hears of the first", func() error { return known(p.Routers(), 2) })
	return p
}

func known(routers []peers.Router, n int) error {
	if len(routers) != n {
		return fmt.Errorf("%v", routers)
	}
	return nil
}

func (m *mesh) count(tb testing.TB, n int) {
	tb.Helper()
	eventually(tb, fmt.Sprint(n, " routers"), func() error { return known(m.router.Routers(), n) })
}

func TestRoutersHearOfEachOther(t *testing.T) {
	t.Parallel()
	m := startMesh(t, func(s *Settings) { s.Version = "v8" })
	m.count(t, 1)
	other := m.another(t, "r2")
	rs := m.router.Routers()
	if rs[1].ID != "r2" || rs[1].Incarnation != 7 || rs[1].Address != "10.0.0.9:7401" || rs[1].HTTP != "10.0.0.9:7481" || rs[1].Version != "v9" {
		t.Errorf("the other: %+v", rs[1])
	}
	if first := other.Routers()[0]; first != rs[0] || first.ID != "r1" || first.Address != m.router.Addr() || first.HTTP != m.router.HTTPAddr() || first.Version != "v8" {
		t.Errorf("the first: %+v, says the other: %+v", rs[0], first)
	}
	if _, n := m.metric(t, "pushmesh_router_routers"); n != "2" {
		t.Errorf("%s are counted", n)
	}
}
