package procmesh

import (
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/test/link"
)

// NATSURL is how another mesh reaches the first NATS server.
func (m *Mesh) NATSURL() string { return "nats://" + m.NATS.Addr }

// NATSAddr is a NATS server's own address, without links.
func (m *Mesh) NATSAddr(server int) string { return m.NATSs[server].Addr }

// reach puts links between processes where the options say so. They end with the test.
func (m *Mesh) reach(t testing.TB, o Options) func(server *Process, client, addr string) string {
	return func(server *Process, client, addr string) string {
		isStore := server.HTTP != ""
		switch {
		case isStore && o.Links:
			l := link.New(t, addr, m.whose)
			m.storeLinks = append(m.storeLinks, l)
			return l.Addr()
		case !isStore && client != "" && (o.Links || o.Halves):
			l := link.New(t, addr, nil)
			m.natsLinks[client] = append(m.natsLinks[client], l)
			return l.Addr()
		case !isStore && client == "" && o.Halves:
			l := link.New(t, addr, nil)
			m.routeLinks = append(m.routeLinks, l)
			return l.Addr()
		}
		return addr
	}
}

// Split parts NATS in two halves until Heal: its two servers don't reach each other, and each tier
// reaches one alone, the second where second says so.
func (m *Mesh) Split(second func(tier string) bool) {
	for _, l := range m.routeLinks {
		l.Set("", link.Fault{Cut: true})
	}
	for tier, links := range m.natsLinks {
		other := 1
		if second(tier) {
			other = 0
		}
		links[other].Set("", link.Fault{Cut: true})
	}
}

// Heal ends a Split.
func (m *Mesh) Heal() {
	for _, l := range m.routeLinks {
		l.Set("", link.Fault{})
	}
	for _, links := range m.natsLinks {
		for _, l := range links {
			l.Set("", link.Fault{})
		}
	}
}

// Part has a tier's connections to every NATS server suffer f from now on.
func (m *Mesh) Part(tier *Process, f link.Fault) {
	for _, l := range m.natsLinks[tier.Name] {
		l.Set("", f)
	}
}

// PartStores has a tier's connections to every store suffer f from now on.
func (m *Mesh) PartStores(tier *Process, f link.Fault) {
	for _, l := range m.storeLinks {
		l.Set(tier.Name, f)
	}
}

// Busiest is the NATS server that most tiers are connected to.
func (m *Mesh) Busiest() *Process {
	n := make([]int, len(m.NATSs))
	for _, links := range m.natsLinks {
		for i, l := range links {
			n[i] += l.Connections("")
		}
	}
	return m.NATSs[slices.Index(n, slices.Max(n))]
}
