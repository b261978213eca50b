package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Mesh of processes: nats-server, one store or several, one router, some edges.
type Mesh struct {
	NATS, Store, Router *Process
	// Second is a store beside the first; nil: there is none.
	Second *Process
	Edges  []*Process

	dir     Dir
	bin     string
	edgeEnv []string
	nats    string // URL
}

// Programs are where binaries lie.
type Programs struct {
	Bin  string // folder of edge, router and store
	NATS string // nats-server
	// EdgeEnv is added to the environment of edges.
	EdgeEnv []string
	// RouterArgs are added to those of routers.
	RouterArgs []string
	// DB is what the store gets as --db; "": a SQLite file.
	DB string
	// TwoStores: there are two, of one Postgres.
	TwoStores bool
	// RouterOn are the CPUs of the router; nil: those of everybody.
	RouterOn CPUs
}

// StartMesh starts a mesh and waits until messages pass.
func (d Dir) StartMesh(ctx context.Context, prog Programs, edges int, edgeArgs ...string) (*Mesh, error) {
	m := &Mesh{dir: d, bin: prog.Bin, edgeEnv: prog.EdgeEnv}
	err := m.start(ctx, prog, edges, edgeArgs)
	if err != nil {
		m.Stop()
		return nil, fmt.Errorf("mesh: %w", err)
	}
	return m, nil
}

func (m *Mesh) start(ctx context.Context, prog Programs, edges int, edgeArgs []string) (err error) {
	defer try.Catch(&err)
	m.NATS = try.Get(m.dir.StartNATS(ctx, prog.NATS))
	m.nats = "nats://" + m.NATS.Addr
	db := prog.DB
	if db == "" {
		db = "sqlite:" + filepath.Join(string(m.dir), fmt.Sprintf("store-%d.db", time.Now().UnixNano()))
	}
	m.Store = try.Get(m.tier("store", "store-1", "--db", db))
	stores, all := m.Store.Addr, []*Process{m.Store}
	if prog.TwoStores {
		m.Second = try.Get(m.tier("store", "store-2", "--db", db))
		stores, all = stores+","+m.Second.Addr, append(all, m.Second)
	}
	try.Do(prog.RouterOn.Do(func() (err error) {
		m.Router, err = m.tier("router", "router-1", append([]string{
			"--stores", stores, "--producer-rate", "10000000", "--producer-in-flight", "1000000", "--max-in-flight", "1000000",
			"--append-wait", "10s",
		}, prog.RouterArgs...)...)
		return err
	}))
	for i := range edges {
		e := try.Get(m.tier("edge", fmt.Sprintf("edge-%d", i+1), append([]string{"--stores", stores}, edgeArgs...)...))
		m.Edges = append(m.Edges, e)
	}
	for _, p := range append(append(all, m.Router), m.Edges...) {
		try.Do(p.ready(ctx))
	}
	return m.settle(ctx)
}

// AnotherRouter starts one more and waits until it is ready. It is the caller's to stop.
func (m *Mesh) AnotherRouter(ctx context.Context, id string) (_ *Process, err error) {
	defer try.Catch(&err)
	p := try.Get(m.tier("router", id, "--stores", m.Store.Addr))
	return p, p.ready(ctx)
}

func (m *Mesh) tier(name, id string, more ...string) (_ *Process, err error) {
	defer try.Catch(&err)
	addr := try.Get(ports.Addr())
	httpAddr := try.Get(ports.Addr())
	p := &Process{Name: id, Addr: addr, HTTP: httpAddr}
	if name == "edge" {
		p.env = m.edgeEnv
		more = append([]string{"--public-address", addr}, more...)
	}
	args := append([]string{"--id", id, "--listen", addr, "--http", httpAddr, "--nats", m.nats, "--log-level", "warn"}, more...)
	return p, m.dir.start(p, filepath.Join(m.bin, name), args...)
}

// settle publishes until the durable path works: the store owns its shards and the router knows it.
func (m *Mesh) settle(ctx context.Context) (err error) {
	defer try.Catch(&err)
	conn := try.Get(grpc.NewClient(m.Router.Addr, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	return m.Router.await(ctx, func(ctx context.Context) error {
		_, err := api.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "room/settle"})
		return err
	})
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
	stopAll(m.Edges)
	stopAll([]*Process{m.Router})
	stopAll([]*Process{m.Store, m.Second})
	stopAll([]*Process{m.NATS})
}

func stopAll(ps []*Process) {
	done := make(chan struct{}, len(ps))
	n := 0
	for _, p := range ps {
		if p == nil || p.done == nil {
			continue
		}
		n++
		go func() { p.Stop(); done <- struct{}{} }()
	}
	for range n {
		<-done
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
	p := &Process{Name: name, Addr: addr}
	path, args := command(port)
	try.Do(d.start(p, path, args...))
	if err := p.listening(ctx); err != nil {
		p.Stop()
		return nil, errors.Join(err)
	}
	return p, nil
}
