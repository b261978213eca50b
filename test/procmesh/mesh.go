package procmesh

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/process"
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
	// From is the pushmesh binary that every tier is started from; "": the tiers' own programs,
	// built here.
	From string
	// NATS URL that the tiers get instead of the real server's (a fault proxy); "": the server's
	// own.
	NATS string
	// TLS has tiers and NATS know each other by certificates (Mesh.Certificate).
	TLS bool
	// Violations of NATS's permissions are no fault: the test makes some.
	Violations bool
	// EdgeArgs are added to every edge's arguments.
	EdgeArgs []string
	// RouterArgs are added to every router's arguments. With --backends among them Start can't see
	// the mesh get ready: it has no key.
	RouterArgs []string
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

	// Of Options.TLS: the folder of the CA's and all certificates' files.
	Certificates string

	// Of Options.Links: a tier's links to each NATS server, and the links to each store, whose
	// clients are tiers.
	natsLinks  map[string][]*link.Link
	storeLinks []*link.Link
	// Of Options.Halves: what the NATS servers reach each other by.
	routeLinks []*link.Link
	// Of Options.Clocks: the files that say how far processes' wall clocks are ahead.
	clocks map[string]string
	// Of RunFrom: what processes ran at first, by name.
	owns map[string]own
	// What was made, once all is: links ask whose a connection is from the moment at which they
	// listen, whoever connects.
	mesh atomic.Pointer[process.Mesh]
}

// Start builds what is missing, starts a mesh and waits until all of it is ready.
func Start(t testing.TB, o Options) *Mesh {
	t.Helper()
	o.TLS = o.TLS || os.Getenv("PUSHMESH_TEST_TLS") != "" && o.NATS == "" && o.NATSServers <= 1 && !o.Halves
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(program string) string { return filepath.Join(bin, program) }
	m := &Mesh{Pushmesh: path("pushmesh"), natsLinks: map[string][]*link.Link{}, clocks: map[string]string{}}
	made, err := process.New(m.layout(t, o, dir, path))
	if err != nil {
		t.Fatal(err)
	}
	m.NATSs, m.Stores, m.Compute, m.Routers, m.Edges = made.NATS, made.Stores, made.Computes[0], made.Routers, made.Edges
	m.NATS, m.StoreAddrs = m.NATSs[0], made.StoreAddrs
	m.RouterAddrs, m.EdgeAddrs = process.Addrs(m.Routers), process.Addrs(m.Edges)
	if o.Clocks {
		bin, err := buildWithClocks()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range slices.Concat(m.Stores, m.Routers, m.Edges) {
			m.clocks[p.Name] = filepath.Join(dir, p.Name+".clock")
			settable(p, bin, m.clocks[p.Name])
		}
	}
	if o.From != "" {
		for _, p := range m.Tiers() {
			m.RunFrom(o.From, p)
		}
	}
	m.mesh.Store(made)
	ends(t, made.All()...)
	for _, p := range made.All() {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	m.WaitReady(t)
	if o.TLS && !o.Violations {
		t.Cleanup(func() { m.noViolations(t) })
	}
	return m
}

// layout is what the options mean for a mesh of processes.
func (m *Mesh) layout(t testing.TB, o Options, dir string, path func(program string) string) process.Options {
	t.Helper()
	of := process.Options{
		NATSServers: max(1, o.NATSServers), Stores: max(1, o.Stores), Computes: 1, Routers: max(1, o.Routers), Edges: max(1, o.Edges),
		Binary: path, Logs: dir, DBs: o.DBs, NATS: o.NATS, Reach: m.reach(t, o), Tied: true,
		Args: map[string][]string{
			"store": o.StoreArgs,
			"router": append([]string{
				"--open=" + strconv.FormatBool(!slices.Contains(o.RouterArgs, "--backends")), "--producer-rate", "1000000", "--producer-in-flight", "10000", "--append-wait", "10s",
			}, o.RouterArgs...),
			"edge": append([]string{"--open=" + strconv.FormatBool(!slices.Contains(o.EdgeArgs, "--issuers")), "--shed-lag", "0"}, o.EdgeArgs...),
		},
	}
	if o.TLS {
		m.Certificates = filepath.Join(dir, "certificates")
		m.NewCA(t)
		of.Certificate, of.NATSConfig = m.Certificate, filepath.Join(root(t), "deploy", "nats", "pushmesh.conf")
	}
	if o.Halves {
		of.NATSServers = 2
	}
	if of.NATSServers > 1 { // clients that are told of others' addresses might pass a link by
		of.Args["nats-server"] = []string{"--no_advertise"}
	}
	if len(of.DBs) == 0 {
		of.DBs = []string{cmp.Or(o.DB, "sqlite:"+filepath.Join(dir, "store.db"))}
	}
	return of
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
	if err := m.mesh.Load().Ready(ctx); err != nil {
		t.Fatal(err)
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
