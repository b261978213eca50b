package procmesh

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/test/link"
)

// startNATS makes the servers, which are a cluster where there are several. Clients are not told of
// others' addresses: they might pass a link by.
func (m *Mesh) startNATS(t testing.TB, o Options, path string) {
	t.Helper()
	n := max(1, o.NATSServers)
	if o.Halves {
		n = 2
	}
	var addrs, routes []string
	for range n {
		addrs, routes = append(addrs, freeAddr(t)), append(routes, freeAddr(t))
	}
	others := slices.Clone(routes) // as each is reached by the others
	if o.Halves {
		for i, addr := range routes {
			l := link.New(t, addr, nil)
			m.routeLinks, others[i] = append(m.routeLinks, l), l.Addr()
		}
	}
	for i, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		args := []string{"-a", host, "-p", port}
		name := "nats-server"
		if n > 1 {
			name = fmt.Sprintf("nats-%d", i+1)
			args = append(args, "--cluster_name", "pushmesh", "--cluster", "nats://"+routes[i], "--no_advertise",
				"--routes", "nats://"+strings.Join(slices.Delete(slices.Clone(others), i, i+1), ",nats://"))
		}
		p := newProcess(t, name, "", path, args...)
		p.addr = addr
		m.NATSs = append(m.NATSs, p)
	}
	m.NATS = m.NATSs[0]
}

// NATSURL is how another mesh reaches the first NATS server.
func (m *Mesh) NATSURL() string { return "nats://" + m.NATS.addr }

// NATSAddr is a NATS server's own address, without links.
func (m *Mesh) NATSAddr(server int) string { return m.NATSs[server].addr }

// natsURL is what a tier gets: every server, or its links to them.
func (m *Mesh) natsURL(t testing.TB, o Options, id string) string {
	t.Helper()
	var urls []string
	for _, p := range m.NATSs {
		addr := p.addr
		if o.Links || o.Halves {
			l := link.New(t, addr, nil)
			m.natsLinks[id] = append(m.natsLinks[id], l)
			addr = l.Addr()
		}
		urls = append(urls, "nats://"+addr)
	}
	return strings.Join(urls, ",")
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
