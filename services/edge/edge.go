// Package edge holds the connections of subscribers. Event loops own them; the mesh behind the
// loops tells routers what is wanted, puts what they send in order, and asks the store.
package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/certs"
	"github.com/pushmesh/pushmesh/internal/claimclient"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/identity/hook"
	"github.com/pushmesh/pushmesh/internal/identity/permission"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/meshtime"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/refusals"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims/handover"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/letters"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/ticket"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/members/follow"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions/asker"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals/gate"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream"
)

// Edge is one node of the edge tier. It is a lifecycle.Part.
type Edge struct {
	settings Settings
	tel      *telemetry.Telemetry
	stack    lifecycle.Stack
	checks   health.Checks
	http     *health.Server

	bus        *bus.Bus
	neighbours *bus.Neighbours
	clock      *meshtime.Clock
	identity   *tierauth.Identity // nil: plain text between tiers
	stores     *storeclient.Client
	policies   *policy.Watch
	mesh       *upstream.Mesh
	compute    *computeclient.Client // nil: there are no nodes
	ranker     *ranking.Ranker
	claims     *handover.Claims
	claimers   *claimclient.Client
	members    *follow.Follower
	loops      []*loop.Loop
	watch      *watch
	tickets    ticket.Book
	// certs and handshakes are nil where there is no TLS.
	certs      *certs.Keeper
	handshakes *handshake.Pool
	// gate, revoked and teams are nil where nobody has to show who it is, tokens where no issuers
	// are known, and hook where no backend is asked.
	tokens  *token.Verifier
	hook    *hook.Hook
	gate    *gate.Gate
	revoked *revocation.Watch
	teams   *team.Watch
	// permissions and asker are nil where no backend is asked what users may do.
	permissions *permission.Hook
	asker       *asker.Asker

	// maxConnections is what the open-files limit leaves of the setting.
	maxConnections int

	started, draining atomic.Bool
}

// New makes an edge. Its address is bound, and answers once the edge is started.
func New(ctx context.Context, s Settings) (*Edge, error) {
	s = s.withDefaults()
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("edge settings: %w", err)
	}
	tel, err := telemetry.New(ctx, telemetry.Config{
		Service: "edge", Instance: s.ID, Version: s.Version, SampleRatio: s.TraceRatio, LogLevel: s.LogLevel,
	})
	if err != nil {
		return nil, err
	}
	e := &Edge{settings: s, tel: tel}
	if err := e.assemble(); err != nil {
		return nil, err
	}
	return e, nil
}

// Telemetry of the node: its log level and ratio of traces may change while it runs.
func (e *Edge) Telemetry() *telemetry.Telemetry { return e.tel }

// assemble makes the parts and puts them in the order in which they start; they stop in reverse.
func (e *Edge) assemble() error {
	s, tel := e.settings, e.tel
	belongs := meshid.New(s.Mesh)
	var err error
	if e.identity, err = tierauth.Open(tierauth.Config{Flags: s.Flags, Tier: tierauth.Edge, Log: tel.Log, Registry: tel.Registry}); err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	e.bus = bus.New(bus.Config{URL: s.NATS, Name: "edge " + s.ID, Mesh: belongs, Log: tel.Log, Secure: e.identity.NATS(s.NATS, s.NATSFlags)})
	e.neighbours = bus.NewNeighbours(e.bus, nil)
	e.clock = meshtime.New(e.bus)
	e.stores = storeclient.New(storeclient.Config{Seeds: s.Stores, DialOptions: dialOptions(tel, e.identity.DialOption(tierauth.Store)), Mesh: belongs, Log: tel.Log})
	e.policies = policy.NewWatch(e.stores, e.bus, bus.Node("edge", s.ID), tel.Log, score.CheckNamespace)
	began := incarnation.New()
	tell := audit.New(audit.Config{
		Edge: s.ID, Incarnation: began, Request: e.bus.Request, Log: tel.Log, Routers: func() []string { return e.mesh.LiveRouters() },
		Namespace: func(topic string) string { return e.policies.Table().For(topic).Prefix },
	}, s.Loops)
	_, untraced := tel.Tracers.(noop.TracerProvider)
	e.mesh = upstream.New(upstream.Config{
		ID: s.ID, Incarnation: began, Bus: e.bus, Store: e.stores, Teller: tell,
		Durable:       func(topic string) bool { return e.policies.Table().For(topic).Durable },
		DurableAny:    func(filter string) bool { return e.policies.Table().AnyDurable(filter) },
		DurableEvents: func() events.Mask { return e.policies.Table().DurableEvents() },
		MaxAttempts:   func(topic string) uint32 { return e.policies.Table().For(topic).MaxAttempts },
		Clock:         e.clock.At,
		Addresses:     s.advertised(), Connections: e.connections, Ticket: e.ticket, TLS: e.identity != nil, About: e.about(), Log: tel.Log, Tracer: tel.Tracer("edge"), Traced: !untraced, ReadsAtATime: s.Resumes, FilterBudget: s.WhereBudget, FilterMemory: s.WhereMemory, PresenceMembers: s.PresenceMembers,
		Groups:        groups.Bounds{Groups: s.MaxGroups, Memory: s.GroupMemory, Rate: s.GroupRate, Address: s.addressGroups()},
		AddressTopics: s.AddressTopics, UserTopics: s.UserTopics,
		Rooms: func(f *meshv1.RoomFrame) { e.members.Receive(f) },
	})
	e.members = follow.New(follow.Config{Edge: s.ID, Incarnation: began, Publish: e.bus.Publish, Routers: e.mesh.Live, Post: e.mesh.Post})
	e.rank(belongs)
	e.claim(began)
	var cpus []int
	if s.PinCPUs {
		var err error
		if cpus, err = poll.CPUs(); err != nil {
			return fmt.Errorf("edge: %w", err)
		}
	}
	if err := e.secure(); err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	who, err := e.principals()
	if err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	door, err := e.newDoor()
	if err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	web, err := s.web(door)
	if err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	refused := refusals.New(decisions.New("pushmesh_edge_decisions_suppressed_total", s.AuditDecisions, tel.Log, tel.Registry))
	var asks permissions.Asker
	if e.asker != nil {
		asks = e.asker
	}
	loops, err := loop.NewAll(loop.Config{
		Door: door, Web: web, Permissions: asks, Rates: loop.Rates{Frames: s.MaxFrameRate, Bytes: s.MaxByteRate, Patience: s.RatePatience}, FrameMemory: max(s.FrameMemory/s.Loops, 1),
		Kept: kept.Config{
			Connection: int64(s.ConnectionMemory), Windows: int64(s.ConnectionMemory / 2), Loop: int64(s.QueueMemory / s.Loops),
			Clients: kept.NewHolders(int64(s.ClientMemory)), Addresses: kept.NewHolders(int64(s.AddressMemory)),
		},
		EdgeID: s.ID, Mesh: asked{e.mesh, e.ranker, e.claims, e.members}, ListenAddr: s.Listen, Limits: limits(s), QueueMemory: s.QueueMemory,
		Buffers: poll.Buffers{Send: s.SocketSend, Receive: s.SocketReceive, NotSent: s.SocketUnsent},
		Poller:  loop.PollerKind(s.Poller), Send: loop.SendMode(s.Send), CPUs: cpus, ShedLag: s.ShedLag, Unhealthy: linkhealth.Mode(s.Unhealthy), Principals: who,
		Events: tell.Rings(), Refusals: refused, Handshakes: e.handshakes,
		PolicyFor: func(topic string) *policy.Policy { return e.policies.Table().For(topic) },
		Unknown:   func() *code.Error { return e.policies.Table().Known() },
		Clock:     e.clock.At,
		Refuses:   func(filter string) *code.Error { return e.policies.Table().Refuses(filter) },
	}, s.Loops)
	if err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	e.loops, e.watch = loops, &watch{loops: loops, log: tel.Log}
	seen := make([]exchange.Loop, len(loops))
	for i, l := range loops {
		seen[i] = l
	}
	e.mesh.SetLoops(seen)
	e.policies.OnChange(e.policiesChanged)
	e.http = health.NewServer(s.HTTP, &e.checks, tel.Registry)
	e.http.Handle("/debug/groups", http.HandlerFunc(e.describeGroups))
	tel.Registry.MustRegister(e.metrics())
	e.bus.Register(tel.Registry)
	e.policies.Register("edge", tel.Registry)
	e.neighbours.Register(tel.Registry)
	e.report()

	e.stack.Add("telemetry", tel)
	e.stack.Add("http", e.http)
	e.stack.Add("profiles", health.NewProfiles(s.PprofAddr, tel.Log))
	if e.identity != nil {
		e.checks.Report("mesh certificate", e.identity.Check)
		e.stack.Add("mesh certificate", e.identity)
	}
	e.stack.Add("nats", e.bus)
	e.stack.Add("neighbours", e.neighbours)
	e.stack.Add("clock", e.clock)
	e.stack.Add("store client", e.stores)
	e.stack.Add("policies", e.policies)
	if e.compute != nil {
		e.stack.Add("compute client", e.compute)
	}
	e.stack.Add("mesh", e.mesh) // tells whether the edge is ready: what that depends on has begun
	e.stack.Add("ranker", e.ranker)
	e.stack.Add("claims client", e.claimers)
	e.stack.Add("claims", e.claims)
	e.stack.Add("members", e.members)
	e.stack.Add("decisions", refused)
	if e.certs != nil {
		e.stack.Add("certificates", e.certs)
	}
	if e.handshakes != nil {
		e.stack.Add("handshakes", e.handshakes)
	}
	if e.gate != nil {
		e.stack.Add("revocations", e.revoked)
		e.stack.Add("teams", e.teams)
		if e.tokens != nil {
			e.stack.Add("issuers", e.tokens)
			e.checks.Report("issuers file", e.tokens.Check)
		}
		if e.hook != nil {
			e.stack.Add("connect hook", e.hook)
		}
		if e.asker != nil {
			e.stack.Add("permission hook", e.permissions)
			e.stack.Add("permissions", e.asker)
		}
		e.stack.Add("tokens", e.gate)
	}
	for i, l := range loops {
		e.stack.Add(fmt.Sprintf("loop %d", i), l)
	}
	e.stack.Add("loop watch", e.watch)
	return nil
}

// asked is what loops ask.
type asked struct {
	*upstream.Mesh
	exchange.Ranks
	exchange.Claims
	exchange.Members
}

// rank makes what rankings are done by.
func (e *Edge) rank(belongs *meshid.Identity) {
	cfg := ranking.Config{Post: e.mesh.Post, Log: e.tel.Log, Registry: e.tel.Registry}
	if len(e.settings.Computes) > 0 {
		e.compute = computeclient.New(computeclient.Config{Addrs: e.settings.Computes, Caller: e.settings.ID, Dial: append(belongs.DialOptions(), dialOptions(e.tel, e.identity.DialOption(tierauth.Compute))...)})
		cfg.Compute = e.compute
	}
	e.ranker = ranking.New(cfg)
}

// claim makes the way of claims to the stores.
func (e *Edge) claim(began uint64) {
	e.claims = handover.New(e.mesh.Post)
	e.claimers = claimclient.New(claimclient.Config{
		Node: "edge:" + e.settings.ID, Incarnation: began, Stores: e.stores, Notify: e.claims.Notify, Log: e.tel.Log, Tier: "edge", Registry: e.tel.Registry,
	})
	e.claims.Use(e.claimers)
}

func limits(s Settings) loop.Limits {
	return loop.Limits{
		MaxFrame: s.MaxFrame, Subscriptions: s.MaxSubscriptions,
		QueueBytes: s.QueueBytes, QueueMessages: s.QueueMessages, HandshakeTimeout: s.HandshakeTimeout, ReplayPace: s.CatchupRate, FrameTimeout: s.FrameTimeout, StuckTimeout: s.StuckTimeout, DeadLetters: letters.Limits{Session: s.DeadLetterRate, Users: letters.NewUsers(s.UserDeadLetterRate)},
	}
}

func (e *Edge) policiesChanged(*policy.Table) {
	e.mesh.PoliciesChanged()
	for i := range e.loops {
		e.mesh.Post(uint16(i), exchange.PoliciesChanged{})
	}
}

// report says what makes the edge not ready, and what it can do without for a while.
func (e *Edge) report() {
	e.checks.Require("loops", func() error {
		var errs []error
		for _, l := range e.loops {
			errs = append(errs, l.Check())
		}
		return errors.Join(errs...)
	})
	e.checks.Require("serving", func() error {
		if !e.started.Load() {
			return errors.New("the edge starts")
		}
		return nil
	})
	e.checks.Require("draining", func() error {
		if e.draining.Load() {
			return errors.New("the edge is stopping")
		}
		return nil
	})
	e.checks.Report("lag", func() error {
		var errs []error
		for i, l := range e.loops {
			if l.Stats().Shedding {
				errs = append(errs, fmt.Errorf("loop %d is late: it refuses new connections and subscriptions", i))
			}
		}
		return errors.Join(errs...)
	})
	e.checks.Report("nats", e.bus.Check)
	e.checks.Report("store", e.stores.Check)
	e.checks.Report("clock", e.clock.Check)
	if e.hook != nil {
		e.checks.Report("connect hook", e.hook.Check)
	}
	if e.permissions != nil {
		e.checks.Report("permission hook", e.permissions.Check)
	}
	e.checks.Report("mesh", func() error { return errors.Join(e.stores.CheckMesh(), e.neighbours.Check(), e.mesh.CheckID()) })
	e.checks.Require("namespaces", e.policies.Check)
	if e.revoked != nil {
		e.checks.Require("revocations", e.revoked.Check)
		e.checks.Require("teams", e.teams.Check)
	}
	e.checks.Report("namespaces understood", e.policies.CheckUnderstood)
	if e.compute != nil {
		e.checks.Report("compute", e.compute.Check)
	}
	e.checks.Report("routers", func() error {
		if e.mesh.Routers() == 0 {
			return errors.New("no router is alive")
		}
		return nil
	})
}

// about tells routers what a digest says beside what is wanted.
func (e *Edge) about() func(*meshv1.EdgeDigest) {
	addresses := sync.OnceValues(func() (http, subscribers string) {
		// The address for routers is of this very edge, whatever its host calls itself.
		subscribers = settings.Advertised(e.settings.BackendAddress, e.Addr())
		return settings.Reach(e.HTTPAddr(), subscribers), subscribers
	})
	return func(d *meshv1.EdgeDigest) {
		ready, _ := e.checks.Status()
		d.Program, d.NotReady = e.settings.Version, !ready
		d.HttpAddress, d.Address = addresses()
		d.PublicAddress = e.settings.PublicAddress
	}
}

// ID is the edge's name in the mesh.
func (e *Edge) ID() string { return e.settings.ID }

// Addr is the address for subscribers.
func (e *Edge) Addr() string { return e.loops[0].Addr() }

// HTTPAddr is the address of health and metrics; known once started.
func (e *Edge) HTTPAddr() string { return e.http.Addr() }

// Start starts every part; connections are taken once it returns. Neither NATS nor a store need be
// there.
func (e *Edge) Start(ctx context.Context) error {
	if err := e.stack.Start(ctx); err != nil {
		return err
	}
	e.started.Store(true)
	e.tel.Log.Info("edge is serving", "address", e.Addr(), "http", e.HTTPAddr(), "loops", len(e.loops), "poller", loop.PollerKind(e.settings.Poller).Chosen(), "send", e.sendMode(), "max_connections", e.maxConnections)
	return nil
}

// sendMode is of the first loop: what one is allowed, all are.
func (e *Edge) sendMode() loop.SendMode {
	mode, why := e.loops[0].SendMode()
	if why != nil {
		e.tel.Log.Info("the kernel offers no io_uring: a system call for each send", "reason", why)
	}
	return mode
}

func (e *Edge) connections() int {
	n := int64(0)
	for _, l := range e.loops {
		n += l.Stats().Connections
	}
	return int(n)
}

func dialOptions(tel *telemetry.Telemetry, secure grpc.DialOption) []grpc.DialOption {
	return []grpc.DialOption{
		secure,
		tel.DialOption(),
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
	}
}
