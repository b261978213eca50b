package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/process"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Mesh of processes: nats-server, one store or several, one router, some edges.
type Mesh struct {
	NATS, Store, Router *Process
	// Second is a store beside the first; nil: there is none.
	Second *Process
	Edges  []*Process

	dir  Dir
	mesh *process.Mesh
}

// Programs are where binaries lie.
type Programs struct {
	Bin  string // folder of edge, router and store
	NATS string // nats-server
	// EdgeEnv is added to the environment of edges.
	EdgeEnv []string
	// EdgesFrom is a pushmesh binary that edges are started from; "": the edge in Bin.
	EdgesFrom string
	// RouterArgs are added to those of routers.
	RouterArgs []string
	// DB is what the store gets as --db; "": a SQLite file.
	DB string
	// TwoStores: there are two, of one Postgres.
	TwoStores bool
	// RouterOn are the CPUs of the router; nil: those of everybody.
	RouterOn CPUs
}

// path of a program.
func (p Programs) path(program string) string {
	if program == "nats-server" {
		return p.NATS
	}
	return filepath.Join(p.Bin, program)
}

// StartMesh starts a mesh and waits until messages pass.
func (d Dir) StartMesh(ctx context.Context, prog Programs, edges int, edgeArgs ...string) (*Mesh, error) {
	m := &Mesh{dir: d}
	err := m.start(ctx, prog, edges, edgeArgs)
	if err != nil {
		m.Stop()
		return nil, fmt.Errorf("mesh: %w", err)
	}
	return m, nil
}

func (m *Mesh) start(ctx context.Context, prog Programs, edges int, edgeArgs []string) (err error) {
	defer try.Catch(&err)
	db := prog.DB
	if db == "" {
		db = "sqlite:" + filepath.Join(string(m.dir), fmt.Sprintf("store-%d.db", time.Now().UnixNano()))
	}
	stores := 1
	if prog.TwoStores {
		stores = 2
	}
	logs := try.Get(os.MkdirTemp(string(m.dir), "mesh-"))
	m.mesh = try.Get(process.New(process.Options{
		NATSServers: 1, Stores: stores, Routers: 1, Edges: edges, Binary: prog.path, DBs: []string{db}, Logs: logs, Tied: true, Profiles: true,
		Args: map[string][]string{
			"store": {"--log-level", "warn", "--outbound-allow", "127.0.0.1"},
			"router": append([]string{
				"--log-level", "warn", "--producer-rate", "10000000", "--producer-in-flight", "1000000", "--max-in-flight", "1000000",
				"--append-wait", "10s",
			}, prog.RouterArgs...),
			"edge": append([]string{"--log-level", "warn"}, edgeArgs...),
		},
	}))
	m.NATS, m.Store, m.Router, m.Edges = m.mesh.NATS[0], m.mesh.Stores[0], m.mesh.Routers[0], m.mesh.Edges
	if prog.TwoStores {
		m.Second = m.mesh.Stores[1]
	}
	for _, e := range m.Edges {
		if prog.EdgesFrom != "" {
			e.Path, e.Args = prog.EdgesFrom, append([]string{"edge"}, e.Args...)
		}
		e.Env = append(e.Env, prog.EdgeEnv...)
		if !slices.Contains(edgeArgs, "--issuers") {
			// a build from before does not know the flag
			e.Env = append(e.Env, "PUSHMESH_OPEN=true")
		}
	}
	for _, r := range m.mesh.Routers {
		r.Env = append(slices.Clone(r.Env), "PUSHMESH_OPEN=true")
	}
	try.Get(started(ctx, m.NATS))
	for _, p := range m.mesh.All()[1:] {
		on := CPUs(nil)
		if p == m.Router {
			on = prog.RouterOn
		}
		try.Do(on.Do(p.Start))
	}
	within, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	try.Do(m.mesh.Ready(within))
	return m.settle(within)
}

// AnotherRouter starts one more and waits until it is ready. It is the caller's to stop.
func (m *Mesh) AnotherRouter(ctx context.Context, id string) (_ *Process, err error) {
	defer try.Catch(&err)
	p := m.dir.new(id, try.Get(ports.Addr()), m.Router.Path)
	p.HTTP, p.Profiles = try.Get(ports.Addr()), try.Get(ports.Addr())
	p.Args = []string{"--id", id, "--listen", p.Addr, "--http", p.HTTP, "--pprof-addr", p.Profiles, "--nats", m.mesh.NATSURL, "--log-level", "warn", "--stores", m.Store.Addr}
	p.Env = append(p.Env, process.PlainTiers)
	return started(ctx, p)
}

// settle publishes until the durable path works: the store owns its shards and the router knows it.
func (m *Mesh) settle(ctx context.Context) (err error) {
	defer try.Catch(&err)
	conn := try.Get(grpc.NewClient(m.Router.Addr, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	for {
		_, err := api.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "room/settle"})
		if err == nil || ctx.Err() != nil || !m.Router.Running() {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// PIDs of the edges.
func (m *Mesh) PIDs() []int {
	var pids []int
	for _, e := range m.Edges {
		pids = append(pids, e.PID())
	}
	return pids
}

// Stop ends all processes, edges first and all of a kind together.
func (m *Mesh) Stop() {
	if m.mesh == nil {
		return
	}
	for _, kind := range [][]*Process{m.mesh.Edges, m.mesh.Routers, m.mesh.Stores, m.mesh.NATS} {
		Stop(kind...)
	}
}

// StartJetStream starts a nats-server that keeps streams in a folder.
func (d Dir) StartJetStream(ctx context.Context, path, folder string) (*Process, error) {
	return d.peer(ctx, "jetstream", func(port string) (string, []string) {
		return path, []string{"-a", "127.0.0.1", "-p", port, "-js", "-sd", folder}
	})
}

// StartNATS starts a nats-server.
func (d Dir) StartNATS(ctx context.Context, path string) (*Process, error) {
	return d.peer(ctx, "nats-server", func(port string) (string, []string) {
		return path, []string{"-a", "127.0.0.1", "-p", port}
	})
}

// peer starts a server that is told its port.
func (d Dir) peer(ctx context.Context, name string, command func(port string) (path string, args []string)) (_ *Process, err error) {
	defer try.Catch(&err)
	addr := try.Get(ports.Addr())
	_, port := try.Get2(net.SplitHostPort(addr))
	path, args := command(port)
	return started(ctx, d.new(name, addr, path, args...))
}
