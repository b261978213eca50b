package procmesh

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/test/link"
)

// Options of a mesh; zero values: one of each tier, SQLite.
type Options struct {
	Edges, Routers, Stores int
	// DB is what --db of the stores gets; "": a SQLite file, which one store alone can have.
	DB string
	// DBs are what --db of each store gets, in place of DB.
	DBs []string
	// NATSServers is how many servers the NATS cluster has; more than one are known to every tier.
	NATSServers int
	// Links has tiers reach NATS and stores over links that can break.
	Links bool
	// Halves has a cluster of two NATS servers which Split can part, and the tiers with them.
	Halves bool
	// Clocks has Process.SetClock set the wall clocks of stores, routers and edges.
	Clocks bool
	// NATS URL that the tiers get instead of the real server's (a fault proxy); "": the server's
	// own.
	NATS string
	// EdgeArgs are added to every edge's arguments.
	EdgeArgs []string
	// StoreArgs are added to every store's.
	StoreArgs []string
}

// Mesh is a running mesh. Everything ends with the test.
type Mesh struct {
	NATS    *Process // the first of NATSs
	NATSs   []*Process
	Compute *Process
	Stores  []*Process
	Routers []*Process
	Edges   []*Process

	// EdgeAddrs and RouterAddrs are what subscribers and producers connect to.
	EdgeAddrs, RouterAddrs []string
	// StoreAddrs serve the API between tiers.
	StoreAddrs []string
	// Pushmesh is the path of the command-line tool.
	Pushmesh string

	// Of Options.Links: a tier's links to each NATS server, and the links to each store, whose
	// clients are tiers.
	natsLinks  map[string][]*link.Link
	storeLinks []*link.Link
	// Of Options.Halves: what the NATS servers reach each other by.
	routeLinks []*link.Link
	// All processes, once the last is made: links ask whose a connection is from the moment at
	// which they listen, whoever connects.
	made atomic.Pointer[[]*Process]
}

// Start builds what is missing, starts a mesh and waits until all of it is ready.
func Start(t testing.TB, o Options) *Mesh {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(bin, name) }
	settable := ""
	if o.Clocks {
		if settable, err = buildWithClocks(); err != nil {
			t.Fatal(err)
		}
	}
	if o.DB == "" && len(o.DBs) == 0 {
		o.DB = "sqlite:" + filepath.Join(dir, "store.db")
	}
	m := &Mesh{Pushmesh: path("pushmesh"), natsLinks: map[string][]*link.Link{}}

	m.startNATS(t, o, path("nats-server"))
	url := func(id string) string {
		if o.NATS != "" {
			return o.NATS
		}
		return m.natsURL(t, o, id)
	}
	tier := func(name, id, addr string, more ...string) *Process {
		httpAddr := freeAddr(t)
		args := append([]string{"--id", id, "--listen", addr, "--http", httpAddr}, more...)
		if settable == "" || name == "compute" {
			return newProcess(t, id, httpAddr, path(name), args...)
		}
		p := newProcess(t, id, httpAddr, filepath.Join(settable, name), args...)
		p.clock = filepath.Join(dir, id+".clock")
		return p
	}
	for i := range max(1, o.Stores) {
		id := fmt.Sprintf("store-%d", i+1)
		db := o.DB
		if len(o.DBs) > 0 {
			db = o.DBs[i]
		}
		addr, args := freeAddr(t), append([]string{"--nats", url(id), "--db", db}, o.StoreArgs...)
		reached := addr
		if o.Links {
			l := link.New(t, addr, m.whose)
			m.storeLinks, reached = append(m.storeLinks, l), l.Addr()
			args = append(args, "--advertise", reached)
		}
		m.Stores, m.StoreAddrs = append(m.Stores, tier("store", id, addr, args...)), append(m.StoreAddrs, reached)
	}
	storeAddrs := strings.Join(m.StoreAddrs, ",")
	computeAddr := freeAddr(t)
	m.Compute = tier("compute", "compute-1", computeAddr, "--stores", storeAddrs)
	for i := range max(1, o.Routers) {
		id, addr := fmt.Sprintf("router-%d", i+1), freeAddr(t)
		p := tier("router", id, addr, "--nats", url(id), "--stores", storeAddrs,
			"--computes", computeAddr, "--producer-rate", "1000000", "--producer-in-flight", "10000", "--append-wait", "10s")
		m.Routers, m.RouterAddrs = append(m.Routers, p), append(m.RouterAddrs, addr)
	}
	for i := range max(1, o.Edges) {
		id, addr := fmt.Sprintf("edge-%d", i+1), freeAddr(t)
		args := append([]string{"--nats", url(id), "--stores", storeAddrs, "--computes", computeAddr, "--public-address", addr, "--shed-lag", "0"}, o.EdgeArgs...)
		m.Edges, m.EdgeAddrs = append(m.Edges, tier("edge", id, addr, args...)), append(m.EdgeAddrs, addr)
	}
	all := m.all()
	m.made.Store(&all)
	for _, p := range all {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	m.WaitReady(t)
	return m
}

func (m *Mesh) all() []*Process {
	ps := append(slices.Clone(m.NATSs), m.Compute)
	ps = append(ps, m.Stores...)
	ps = append(ps, m.Routers...)
	return append(ps, m.Edges...)
}

// EdgesKilled is when each edge was killed, by its id.
func (m *Mesh) EdgesKilled() map[string][]time.Time {
	all := map[string][]time.Time{}
	for _, p := range m.Edges {
		all[p.Name] = p.Killed()
	}
	return all
}

// WaitReady waits, patience at most, until every tier is ready and misses nothing.
func (m *Mesh) WaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	whole := func(body string) bool {
		return !strings.Contains(body, "missing") && !strings.Contains(body, "degraded")
	}
	for _, p := range m.all() {
		if p.HTTP == "" {
			continue
		}
		if err := p.Ready(ctx, whole); err != nil {
			t.Fatal(err)
		}
	}
}

func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
