package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/ports"
)

// Host is where every process serves: a mesh of processes is for this machine alone.
const Host = "127.0.0.1"

// Options of a mesh.
type Options struct {
	// NATSServers and so on are how many there are; several NATS servers are a cluster.
	NATSServers, Stores, Computes, Routers, Edges int
	// Binary is the path of a program: nats-server, store, compute, router or edge.
	Binary func(program string) string
	// Args are added to those of each process of a program.
	Args map[string][]string
	// Logs is the folder of the log files.
	Logs string
	// DBs are what --db of each store gets; the last is that of all further stores.
	DBs []string
	// NATS is what tiers get in place of the servers' URLs; "": the servers'.
	NATS string
	// Reach is how client, a process's name, reaches a server at addr: by way of what a test puts
	// between them. Of a store all clients are one, "". nil: at addr.
	Reach func(server *Process, client, addr string) string
	// FixedPorts are docs/api.md's and those 10 higher, instead of free ones.
	FixedPorts bool
	// Profiles has each tier serve profiles (Process.Profiles).
	Profiles bool
	// Certificate, if any, makes the files of a process's certificate, key and CA, of a tier or of
	// NATS ("nats"): what the processes say to each other is encrypted then. Without it they are
	// told --plain-tiers by their environment, so that older builds start as well.
	Certificate func(tier, name string) (cert, key, ca string, err error)
	// NATSConfig is a file that NATS servers are started with. It finds their certificates in the
	// environment, PUSHMESH_MESH_CERT and so on.
	NATSConfig string
	// Tied processes are killed when this program ends.
	Tied bool
}

// Mesh is a mesh of processes, each with its address and arguments, which are decided before any is
// started, so that each can be started again with the same ones.
type Mesh struct {
	NATS, Stores, Computes, Routers, Edges []*Process

	// NATSURL is every NATS server's own, with commas between.
	NATSURL string
	// StoreAddrs are how others reach the stores.
	StoreAddrs []string
}

// Fixed ports of the first of each; those of further ones are 10 higher each, and HTTP 80 higher.
// clusterPort is the second of a NATS server, for its cluster.
const (
	edgePort    = 7400
	routerPort  = 7401
	computePort = 7402
	storePort   = 7403
	natsPort    = 7404
	clusterPort = 7405
	httpOffset  = 80
)

// New lays a mesh out; nothing runs yet.
func New(o Options) (*Mesh, error) {
	l := &layout{Options: o, mesh: &Mesh{}}
	if l.Reach == nil {
		l.Reach = func(_ *Process, _, addr string) string { return addr }
	}
	l.nats()
	l.stores()
	stores := []string{"--stores", strings.Join(l.mesh.StoreAddrs, ",")}
	for i := range o.Computes {
		l.mesh.Computes = append(l.mesh.Computes, l.tier("compute", i, computePort, stores...))
	}
	upstream := stores
	if o.Computes > 0 {
		upstream = append(upstream, "--computes", strings.Join(Addrs(l.mesh.Computes), ","))
	}
	for i := range o.Routers {
		l.mesh.Routers = append(l.mesh.Routers, l.onNATS(l.tier("router", i, routerPort, upstream...)))
	}
	for i := range o.Edges {
		p := l.onNATS(l.tier("edge", i, edgePort, upstream...))
		p.Args = append(p.Args, "--public-address", p.Addr)
		l.mesh.Edges = append(l.mesh.Edges, p)
	}
	for _, p := range l.mesh.All() { // last, so that they outdo those from here
		p.Args = append(p.Args, o.Args[p.program]...)
	}
	return l.mesh, l.err
}

// All processes, in the order in which they are started.
func (m *Mesh) All() []*Process {
	return slices.Concat(m.NATS, m.Stores, m.Computes, m.Routers, m.Edges)
}

// Ready waits until every process is ready and misses nothing.
func (m *Mesh) Ready(ctx context.Context) error {
	for _, p := range m.All() {
		if err := p.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops every process, in the reverse order, each within grace.
func (m *Mesh) Stop(grace time.Duration) error {
	var errs []error
	for _, p := range slices.Backward(m.All()) {
		errs = append(errs, p.Stop(grace))
	}
	return errors.Join(errs...)
}

// Addrs of processes.
func Addrs(ps []*Process) (addrs []string) {
	for _, p := range ps {
		addrs = append(addrs, p.Addr)
	}
	return addrs
}

// layout makes a mesh, until something fails.
type layout struct {
	Options
	mesh *Mesh
	err  error
}

// addr of a process, the nth of its kind.
func (l *layout) addr(port, nth int) string {
	if l.FixedPorts {
		return net.JoinHostPort(Host, strconv.Itoa(port+10*nth))
	}
	addr, err := ports.Addr()
	l.err = errors.Join(l.err, err)
	return addr
}

func (l *layout) process(name, program string) *Process {
	return &Process{Name: name, program: program, Path: l.Binary(program), Log: filepath.Join(l.Logs, name+".log"), Tied: l.Tied}
}

// nats adds the NATS servers. Every tier is told of all.
func (l *layout) nats() {
	var routes, reached, urls []string
	for i := range l.NATSServers {
		p := l.process("nats", "nats-server")
		if l.NATSServers > 1 {
			p.Name = fmt.Sprintf("nats-%d", i+1)
			p.Log = filepath.Join(l.Logs, p.Name+".log")
			route := l.addr(clusterPort, i)
			routes, reached = append(routes, "nats://"+route), append(reached, "nats://"+l.Reach(p, "", route))
		}
		p.Addr = l.addr(natsPort, i)
		_, port, err := net.SplitHostPort(p.Addr)
		l.err = errors.Join(l.err, err)
		p.Args = []string{"-a", Host, "-p", port}
		if l.NATSConfig != "" {
			cert, key, ca, err := l.Certificate("nats", p.Name)
			l.err = errors.Join(l.err, err)
			p.Args = append(p.Args, "-c", l.NATSConfig)
			p.Env = append(p.Env, "PUSHMESH_MESH_CERT="+cert, "PUSHMESH_MESH_KEY="+key, "PUSHMESH_MESH_CA="+ca)
		}
		l.mesh.NATS, urls = append(l.mesh.NATS, p), append(urls, "nats://"+p.Addr)
	}
	for i, route := range routes {
		others := slices.Delete(slices.Clone(reached), i, i+1)
		p := l.mesh.NATS[i]
		p.Args = append(p.Args, "--cluster_name", "pushmesh", "--cluster", route, "--routes", strings.Join(others, ","))
	}
	l.mesh.NATSURL = strings.Join(urls, ",")
}

func (l *layout) stores() {
	for i := range l.Stores {
		p := l.onNATS(l.tier("store", i, storePort))
		// Not an argument: it may hold a password, and everybody on the host may list those.
		p.Env = append(p.Env, "PUSHMESH_DB="+l.DBs[min(i, len(l.DBs)-1)])
		reached := l.Reach(p, "", p.Addr)
		if reached != p.Addr {
			p.Args = append(p.Args, "--advertise", reached)
		}
		l.mesh.Stores, l.mesh.StoreAddrs = append(l.mesh.Stores, p), append(l.mesh.StoreAddrs, reached)
	}
}

// tier is the nth process of a tier.
func (l *layout) tier(program string, nth, port int, more ...string) *Process {
	p := l.process(fmt.Sprintf("%s-%d", program, nth+1), program)
	p.Addr, p.HTTP = l.addr(port, nth), l.addr(port+httpOffset, nth)
	p.Args = append([]string{"--id", p.Name, "--listen", p.Addr, "--http", p.HTTP}, more...)
	l.secure(p, program)
	if l.Profiles {
		addr, err := ports.Addr()
		l.err = errors.Join(l.err, err)
		p.Profiles, p.Args = addr, append(p.Args, "--pprof-addr", addr)
	}
	return p
}

// onNATS tells a tier of NATS.
func (l *layout) onNATS(p *Process) *Process {
	url := l.NATS
	if url == "" {
		var urls []string
		for _, server := range l.mesh.NATS {
			urls = append(urls, "nats://"+l.Reach(server, p.Name, server.Addr))
		}
		url = strings.Join(urls, ",")
	}
	p.Args = append(p.Args, "--nats", url)
	return p
}

// PlainTiers is the variable that has a tier do without certificates.
const PlainTiers = "PUSHMESH_PLAIN_TIERS=true"

// secure gives a process of a tier its certificate, or says that there is none.
func (l *layout) secure(p *Process, tier string) {
	if l.Certificate == nil {
		p.Env = append(p.Env, PlainTiers)
		return
	}
	cert, key, ca, err := l.Certificate(tier, p.Name)
	l.err = errors.Join(l.err, err)
	p.Args = append(p.Args, "--mesh-cert", cert, "--mesh-key", key, "--mesh-ca", ca)
}
