package procmesh

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/ports"
)

// Options of a mesh; zero values: one of each tier, SQLite.
type Options struct {
	Edges, Routers, Stores int
	// DB is what --db of the stores gets; "": a SQLite file, which one store alone can have.
	DB string
	// NATS URL that the tiers get instead of the real server's (a fault proxy); "": the server's own.
	NATS string
	// EdgeArgs are added to every edge's arguments.
	EdgeArgs []string
	// StoreArgs are added to every store's.
	StoreArgs []string
}

// Mesh is a running mesh. Everything ends with the test.
type Mesh struct {
	NATS    *Process
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
	if o.DB == "" {
		o.DB = "sqlite:" + filepath.Join(dir, "store.db")
	}
	m := &Mesh{Pushmesh: path("pushmesh")}

	natsAddr := freeAddr(t)
	_, port, _ := net.SplitHostPort(natsAddr)
	m.NATS = newProcess(t, "nats-server", "", path("nats-server"), "-a", "127.0.0.1", "-p", port)
	if o.NATS == "" {
		o.NATS = "nats://" + natsAddr
	}
	tier := func(name, id string, more ...string) (*Process, string) {
		addr, httpAddr := freeAddr(t), freeAddr(t)
		args := append([]string{"--id", id, "--listen", addr, "--http", httpAddr}, more...)
		return newProcess(t, id, httpAddr, path(name), args...), addr
	}
	for i := range max(1, o.Stores) {
		p, addr := tier("store", fmt.Sprintf("store-%d", i+1), append([]string{"--nats", o.NATS, "--db", o.DB}, o.StoreArgs...)...)
		m.Stores, m.StoreAddrs = append(m.Stores, p), append(m.StoreAddrs, addr)
	}
	storeAddrs := strings.Join(m.StoreAddrs, ",")
	compute, computeAddr := tier("compute", "compute-1")
	m.Compute = compute
	for i := range max(1, o.Routers) {
		p, addr := tier("router", fmt.Sprintf("router-%d", i+1), "--nats", o.NATS, "--stores", storeAddrs,
			"--computes", computeAddr, "--producer-rate", "1000000", "--producer-in-flight", "10000")
		m.Routers, m.RouterAddrs = append(m.Routers, p), append(m.RouterAddrs, addr)
	}
	for i := range max(1, o.Edges) {
		args := append([]string{"--nats", o.NATS, "--stores", storeAddrs, "--shed-lag", "0"}, o.EdgeArgs...)
		p, addr := tier("edge", fmt.Sprintf("edge-%d", i+1), args...)
		m.Edges, m.EdgeAddrs = append(m.Edges, p), append(m.EdgeAddrs, addr)
	}
	for _, p := range m.all() {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	m.WaitReady(t)
	return m
}

func (m *Mesh) all() []*Process {
	ps := append([]*Process{m.NATS, m.Compute}, m.Stores...)
	ps = append(ps, m.Routers...)
	return append(ps, m.Edges...)
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
