package procmesh

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Options of a mesh; zero values: one of each tier, SQLite.
type Options struct {
	Edges, Routers int
	// DB is what --db of the store gets; "": a SQLite file.
	DB string
	// NATS URL that the tiers get instead of the real server's (a fault proxy); "": the server's own.
	NATS string
	// EdgeArgs are added to every edge's arguments.
	EdgeArgs []string
}

// Mesh is a running mesh. Everything ends with the test.
type Mesh struct {
	NATS    *Process
	Store   *Process
	Compute *Process
	Routers []*Process
	Edges   []*Process

	// EdgeAddrs and RouterAddrs are what subscribers and producers connect to.
	EdgeAddrs, RouterAddrs []string
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
	var storeAddr, computeAddr string
	m.Store, storeAddr = tier("store", "store-1", "--nats", o.NATS, "--db", o.DB)
	m.Compute, computeAddr = tier("compute", "compute-1")
	for i := range max(1, o.Routers) {
		p, addr := tier("router", fmt.Sprintf("router-%d", i+1), "--nats", o.NATS, "--stores", storeAddr,
			"--computes", computeAddr, "--producer-rate", "1000000", "--producer-in-flight", "10000")
		m.Routers, m.RouterAddrs = append(m.Routers, p), append(m.RouterAddrs, addr)
	}
	for i := range max(1, o.Edges) {
		args := append([]string{"--nats", o.NATS, "--stores", storeAddr}, o.EdgeArgs...)
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
	ps := []*Process{m.NATS, m.Store, m.Compute}
	ps = append(ps, m.Routers...)
	return append(ps, m.Edges...)
}

// WaitReady waits, 30 s at most, until every tier is ready and misses nothing.
func (m *Mesh) WaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

// ports are handed out from below the kernel's ephemeral range, so that a process can be restarted on the port it had while
// others make connections.
var nextPort atomic.Uint32

// freeAddr finds a loopback address that nobody listens on.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 2000 {
		port := 12000 + (uint32(os.Getpid())*97+nextPort.Add(1))%18000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}
