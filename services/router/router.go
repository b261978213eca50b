// Package router is the mesh's front door and switchboard: it serves the public gRPC API, has
// durable messages appended by the store tier, knows which edges want a topic, and sends each of
// them one copy over NATS.
package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/certs"
	"github.com/pushmesh/pushmesh/internal/claimclient"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/intake"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/meshtime"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/internal/turns"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
	"github.com/pushmesh/pushmesh/services/router/internal/api"
	"github.com/pushmesh/pushmesh/services/router/internal/appender"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
	"github.com/pushmesh/pushmesh/services/router/internal/claims"
	"github.com/pushmesh/pushmesh/services/router/internal/gate"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
	"github.com/pushmesh/pushmesh/services/router/internal/lag"
	"github.com/pushmesh/pushmesh/services/router/internal/nodes"
	"github.com/pushmesh/pushmesh/services/router/internal/peers"
	"github.com/pushmesh/pushmesh/services/router/internal/presencerooms"
	"github.com/pushmesh/pushmesh/services/router/internal/presencewatch"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
	"github.com/pushmesh/pushmesh/services/router/internal/subscribe"
	"github.com/pushmesh/pushmesh/services/router/internal/switchboard"
)

// Router is one node of the router tier. It is a lifecycle.Part.
type Router struct {
	lifecycle.Stack
	settings Settings
	tel      *telemetry.Telemetry
	front    *front
	http     *health.Server
	peers    *peers.Peers
	lost     *lostEdges
	conns    *conns
	// certs and tls are nil where there is no TLS.
	certs *certs.Keeper
	tls   *grpcserve.TLS
	// identity is what other tiers are shown; nil: plain text.
	identity *tierauth.Identity
	gate     *gate.Gate
	// backends is nil with --open, and tokens without issuers.
	backends *backends.Keeper
	tokens   *token.Verifier
}

// New makes a router; nothing runs before Start.
func New(ctx context.Context, s Settings) (*Router, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("router settings: %w", err)
	}
	s = s.withDefaults()
	tel, err := telemetry.New(ctx, telemetry.Config{
		Service: "router", Instance: s.ID, Version: s.Version, SampleRatio: s.TraceRatio, LogLevel: s.LogLevel,
	})
	if err != nil {
		return nil, err
	}
	r := &Router{settings: s, tel: tel, conns: newConns(s.MaxConnections, tel.Registry)}
	if err := r.secure(tel); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if r.identity, err = tierauth.Open(tierauth.Config{Flags: s.Flags, Tier: tierauth.Router, Log: tel.Log, Registry: tel.Registry}); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	guard, err := r.identify(tel)
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	r.assemble(s, tel, guard)
	return r, nil
}

// Telemetry of the node: its log level and ratio of traces may change while it runs.
func (r *Router) Telemetry() *telemetry.Telemetry { return r.tel }

// assemble puts the parts in the order in which they start; they stop in reverse: peers hear that
// this router leaves, then the front ends, and what carries its answers and deliveries after it.
func (r *Router) assemble(s Settings, tel *telemetry.Telemetry, guard gate.Config) {
	late := lag.NewProbe(s.ShedLag, tel.Registry)
	waited := late.Waited
	if s.ShedLag == 0 {
		waited = nil // nobody asks how long requests wait
	}
	var (
		began      = incarnation.New()
		belongs    = meshid.New(s.Mesh)
		mesh       = bus.New(bus.Config{URL: s.NATS, Name: "router " + s.ID, Mesh: belongs, Log: tel.Log, Secure: r.identity.NATS(s.NATS, s.NATSFlags)})
		neighbours = bus.NewNeighbours(mesh, nil)
		clock      = meshtime.New(mesh)
		stores     = storeclient.New(storeclient.Config{Seeds: s.Stores, DialOptions: dialOptions(tel, r.identity.DialOption(tierauth.Store)), Mesh: belongs, Log: tel.Log})
		watch      = policy.NewWatch(stores, mesh, bus.Node("router", s.ID), tel.Log, score.CheckNamespace)
		app        = appender.New(appender.Config{
			Owners: stores, MaxItems: s.MaxInFlight, MaxBytes: s.MaxBytes, MaxWait: s.AppendWait, Registry: tel.Registry,
		})
		edges = switchboard.New(switchboard.Config{
			RouterID: s.ID, Incarnation: began, Bus: mesh, BroadcastFrom: s.BroadcastFrom, QueueBytes: s.EdgeQueueBytes, Log: tel.Log, Registry: tel.Registry, Lost: r.edgeLost,
		})
		admit = admission.New(admission.Config{
			Producer: admission.Limits{Rate: s.ProducerRate, InFlight: s.ProducerInFlight},
			Own:      r.own(),
			Overall:  admission.Limits{Rate: s.MaxRate, InFlight: s.MaxInFlight},
			MaxBytes: s.MaxBytes, Store: app.Admits, Edges: edges.Admits, Lag: late.Pressure,
			Registry: tel.Registry,
		})
		fair       = turns.New(late.Late)
		publisher  = publish.New(publish.Config{Policies: watch, Admission: admit, Appender: app, Routes: edges, Telemetry: tel, Waited: waited, Clock: clock.At})
		changes    = audit.New(audit.Config{Router: s.ID, Run: began, Publish: publisher.PublishOwn, Log: tel.Audit, Written: tel.Written, Registry: tel.Registry})
		clients    = publish.NewClients(publisher, mesh, s.ID)
		able       = func() error { return errors.Join(edges.Check(), watch.Check()) }
		written    = publish.NewOutbox(publisher, mesh, able)
		happened   = publish.NewEvents(publisher, mesh, s.ID, able)
		compute    = computeclient.New(computeclient.Config{Addrs: s.Computes, Caller: s.ID, Dial: append(belongs.DialOptions(), tel.DialOption(), r.identity.DialOption(tierauth.Compute))})
		checks     = &health.Checks{}
		known      = nodes.New(mesh, time.Now)
		namespaces = api.NewNamespace(stores, stores, known, watch.AwaitVersion)
		claimed    = claims.New(claims.Config{
			RouterID: s.ID, Incarnation: began, Stores: stores, Caller: publish.Caller, MaxPerCaller: s.CallerClaims, MaxWatches: s.ClaimWatches,
			Client: claimclient.Config{Log: tel.Log}, Registry: tel.Registry,
		})
		inRooms *presencerooms.Rooms
		members = presencewatch.New(presencewatch.Config{
			RouterID: s.ID, Incarnation: began, Edges: edges, Bus: mesh, Policies: watch, Registry: tel.Registry,
			MaxStreams: s.PresenceWatches, MaxMembers: s.PresenceMembers, MaxQueued: s.PresenceQueue,
			Rooms: func(edge presence.Source, l *meshv1.RoomLease) { inRooms.Lease(edge, l) },
		})
	)
	inRooms = presencerooms.New(presencerooms.Config{RouterID: s.ID, Watches: members, Policies: watch, Publish: mesh.Publish, MaxRooms: s.PresenceTopics, MaxBytes: s.PresenceMemory, Registry: tel.Registry})
	guard.Audit = changes
	r.gate = gate.New(guard)
	r.front = &front{
		listen: s.Listen, advertise: s.Advertise, checks: checks, durable: func() error { return errors.Join(watch.Check(), stores.CheckAny()) }, telemetry: tel,
		publish: publish.NewService(publisher, stores, fair), clients: clients, written: written, events: happened,
		history: api.NewHistory(stores), session: api.NewSession(stores, edges, mesh),
		access:    api.NewAccess(stores),
		members:   api.NewMembership(stores),
		namespace: namespaces, presence: api.NewPresence(edges, mesh, watch.Table, members), rank: api.NewRank(compute, watch.Table, stores, namespaces),
		letters: api.NewDeadLetter(stores, publisher), kept: api.NewKept(stores, publisher, watch.Table), mesh: api.NewMesh(r.describe(began, checks), belongs.Mesh, known, compute, edges, mesh, stores),
		subscribe: subscribe.New(subscribe.Config{
			RouterID: s.ID, Edges: edges, Via: mesh, Caller: publish.Caller, MaxStreams: s.Consumers, MaxPerCaller: s.CallerConsumers,
			Identity: r.identity, Registry: tel.Registry,
		}),
		claims: claimed,
		calls:  s.MaxCalls, conns: r.conns, tls: r.tls, gate: r.gate, requests: intake.New(s.RequestBytes), turns: fair,
	}
	r.front.requests.Register("router", tel.Registry)
	fair.Register(tel.Registry)
	r.lost = newLostEdges(lostConfig{
		router: s.ID, incarnation: began, take: happened.Take, routers: r.Routers, log: tel.Log,
		durable: func(topic string) bool { return watch.Table().For(topic).Durable },
	})
	r.http = health.NewServer(s.HTTP, checks, tel.Registry)

	r.peers = peers.New(peers.Config{
		ID: s.ID, Incarnation: began, Version: s.Version, Addresses: r.addresses, Bus: mesh,
		Ready: func() bool {
			ready, _ := checks.Status()
			return ready
		},
		Changed: admit.Share, Log: tel.Log, Registry: tel.Registry,
	})

	checks.Require("serving", r.front.check)
	mesh.Register(tel.Registry)
	watch.Register("router", tel.Registry)
	neighbours.Register(tel.Registry)
	checks.Require("nats", mesh.Check)
	checks.Require("interest", edges.Check)
	checks.Report("store", stores.Check)
	checks.Report("clock", clock.Check)
	checks.Report("mesh", func() error { return errors.Join(stores.CheckMesh(), neighbours.Check(), r.peers.CheckID()) })
	checks.Require("namespaces", watch.Check)
	checks.Report("namespaces understood", watch.CheckUnderstood)
	if r.certs != nil {
		checks.Report("certificates", r.certs.Check)
	}
	if r.identity != nil {
		checks.Report("mesh certificate", r.identity.Check)
	}
	if r.backends != nil {
		checks.Report("backends file", r.backends.Check)
	}
	if r.tokens != nil {
		checks.Report("issuers file", r.tokens.Check)
	}
	if len(s.Computes) > 0 {
		checks.Report("compute", compute.Check)
	}

	r.Add("telemetry", tel)
	r.Add("http", r.http)
	r.Add("profiles", health.NewProfiles(s.PprofAddr, tel.Log))
	if r.identity != nil {
		r.Add("mesh certificate", r.identity)
	}
	r.Add("nats", mesh)
	r.Add("neighbours", neighbours)
	r.Add("clock", clock)
	r.Add("store client", stores)
	r.Add("policies", watch)
	r.Add("claims", claimed)
	r.Add("nodes", known)
	r.Add("switchboard", edges)
	r.Add("rooms", inRooms)
	r.Add("presence watches", members)
	r.Add("appender", app)
	r.Add("lag", late)
	r.Add("compute client", compute)
	r.Add("clients", clients)
	r.Add("outbox", written)
	r.Add("events", happened)
	r.Add("lost edges", r.lost.queue)
	r.Add("audit", changes)
	if r.certs != nil {
		r.Add("certificates", r.certs)
	}
	if r.tokens != nil {
		r.Add("tokens", r.tokens)
	}
	if r.backends != nil {
		r.Add("backends file", r.backends)
	}
	r.Add("front", r.front)
	r.Add("peers", r.peers)
}

// addresses at which others reach this router.
func (r *Router) addresses() (grpc, http string) {
	grpc = settings.Advertised(r.settings.Advertise, r.Addr())
	return grpc, settings.Reach(r.HTTPAddr(), grpc)
}

func (r *Router) edgeLost(e interest.Edge, connections uint32) { r.lost.publish(e, connections) }

// Routers is every live router of the mesh that this one knows of, itself included, by id.
func (r *Router) Routers() []peers.Router { return r.peers.Routers() }

// describe is what this router says of itself.
func (r *Router) describe(began uint64, checks *health.Checks) func() *pushmeshv1.Node {
	addresses := sync.OnceValues(r.addresses)
	return func() *pushmeshv1.Node {
		n := &pushmeshv1.Node{
			Tier: pushmeshv1.Tier_TIER_ROUTER, Id: r.settings.ID, Incarnation: began, Version: r.settings.Version,
			Draining: r.front.stopping.Load(), Ready: pushmeshv1.Ready_READY_NO,
		}
		if ready, _ := checks.Status(); ready {
			n.Ready = pushmeshv1.Ready_READY_YES
		}
		n.GrpcAddress, n.HttpAddress = addresses()
		return n
	}
}

// Addr is the address of the gRPC API.
func (r *Router) Addr() string { return r.front.server.Addr() }

// HTTPAddr is the address of health and metrics.
func (r *Router) HTTPAddr() string { return r.http.Addr() }

// ID is the router's name in the mesh.
func (r *Router) ID() string { return r.settings.ID }

func dialOptions(tel *telemetry.Telemetry, secure grpc.DialOption) []grpc.DialOption {
	return []grpc.DialOption{
		secure,
		tel.DialOption(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.Codec{})),
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
	}
}

var errStopping = errors.New("the router is stopping")

// stopping is set by a planned stop: not ready from then on.
type stopping struct{ atomic.Bool }

func (s *stopping) err() error {
	if s.Load() {
		return errStopping
	}
	return nil
}
