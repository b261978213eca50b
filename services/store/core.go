package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/claims"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/prepare"
	"github.com/pushmesh/pushmesh/services/store/internal/clock"
	"github.com/pushmesh/pushmesh/services/store/internal/databases"
	"github.com/pushmesh/pushmesh/services/store/internal/deadletter"
	"github.com/pushmesh/pushmesh/services/store/internal/dispatch"
	"github.com/pushmesh/pushmesh/services/store/internal/housekeeping"
	"github.com/pushmesh/pushmesh/services/store/internal/outbox"
	"github.com/pushmesh/pushmesh/services/store/internal/ownership"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
	"github.com/pushmesh/pushmesh/services/store/internal/schedule"
	"github.com/pushmesh/pushmesh/services/store/internal/service"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
	"github.com/pushmesh/pushmesh/services/store/internal/sqlite"
)

const (
	// maxReceive lets a router's batch of large messages in.
	maxReceive = 16 << 20
	// firstShards is how long Start waits for the shards. Without them the store runs, and is not
	// ready.
	firstShards = 5 * time.Second
	// startRetry is the pause between tries to reach the database at the start.
	startRetry = 500 * time.Millisecond
)

// core is everything that needs the database. It is a lifecycle.Part: Start opens the database and
// builds the rest on it.
type core struct {
	settings Settings
	tel      *telemetry.Telemetry
	http     func() string // where health and metrics are served; known once started
	metrics  *shardlog.Metrics
	bus      *bus.Bus // nil: standalone
	mesh     *meshid.Identity
	identity *tierauth.Identity // nil: plain text between tiers
	// guard and secret are for calls to URLs of policies.
	guard  *outbound.Guard
	secret *outbound.Secret

	serving  atomic.Bool
	log      atomic.Pointer[shardlog.Log]
	pulse    atomic.Pointer[pulse]
	policies atomic.Pointer[policy.Watch]
	// revocations is the version of the last change that this store has made or known of.
	revocations atomic.Uint64
	teams       atomic.Uint64 // the same of teams
	claims      atomic.Pointer[claims.Lane]
	server      atomic.Pointer[grpcserve.Server]
	// neighbours is nil before the database is open, and where there is no NATS.
	neighbours atomic.Pointer[bus.Neighbours]

	clock   *clock.Clock
	backend backend.Backend
	owners  *ownership.Manager
	// dispatch is for messages that begin here, not at a router.
	dispatch *dispatch.Dispatcher
	service  *service.Service
	parts    lifecycle.Stack // on the backend, below the server
}

func newCore(s Settings, tel *telemetry.Telemetry) (*core, error) {
	allow, err := outbound.ParseAllow(s.OutboundAllow)
	if err != nil {
		return nil, err
	}
	secret, err := outbound.OpenSecret(s.WebhookSecrets, time.Now)
	if err != nil {
		return nil, err
	}
	c := &core{settings: s, tel: tel, mesh: meshid.New(""), metrics: shardlog.NewMetrics(tel.Registry), secret: secret}
	c.guard = outbound.New(outbound.Config{Metric: "pushmesh_store_outbound_refused_total", Allow: allow, Log: tel.Log, Registry: tel.Registry})
	c.clock = clock.New(clock.Config{
		Ask:  func(ctx context.Context) (uint64, error) { return c.backend.Time(ctx) },
		Host: s.Clock, Trust: s.TrustClock, Log: tel.Log, Registry: tel.Registry,
	})
	return c, nil
}

func (c *core) databaseName() string {
	if c.settings.postgres() {
		return "postgres"
	}
	return "database"
}

func (c *core) addr() string { return c.server.Load().Addr() }

func (c *core) checkServing() error {
	if !c.serving.Load() {
		return errors.New("the store starts or stops")
	}
	return nil
}

func (c *core) checkShards() error {
	if log := c.log.Load(); log != nil {
		return log.Check()
	}
	return errors.New("this store owns no shards yet")
}

func (c *core) checkDatabase() error {
	if p := c.pulse.Load(); p != nil {
		return p.check()
	}
	return errors.New("not opened yet")
}

// checkClaims reports whether claims are served: without them the store does all else.
func (c *core) checkClaims() error {
	if lane := c.claims.Load(); lane != nil {
		return lane.Check()
	}
	return errors.New("not opened yet")
}

// checkNamespaces asks what the watch of policies reports.
func (c *core) checkNamespaces(of func(*policy.Watch) error) func() error {
	return func() error {
		if w := c.policies.Load(); w != nil {
			return of(w)
		}
		return errors.New("not opened yet")
	}
}

// checkFencing names stores whose shards nobody could take, were they to hang.
func (c *core) checkFencing() error {
	if !c.serving.Load() {
		return nil
	}
	return c.owners.CheckFencing()
}

// checkPromotion says why a promotion would not be trusted.
func (c *core) checkPromotion() error {
	if db, ok := c.backend.(backend.Promotable); ok && c.serving.Load() {
		return db.CheckPromotion()
	}
	return nil
}

// checkClock says why nothing is deleted now.
func (c *core) checkClock() error { return c.clock.Check() }

// checkBreaker says what the database's work shows, while checkDatabase asks it.
func (c *core) checkBreaker() error {
	if !c.serving.Load() {
		return nil
	}
	return c.backend.Check()
}

func (c *core) open(ctx context.Context) (backend.Backend, error) {
	if c.settings.sqlite() {
		path := strings.TrimPrefix(c.settings.DB, "sqlite:")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			c.tel.Log.Info("new database: there is no file of this name yet", "path", path)
		}
		return sqlite.Open(ctx, path)
	}
	home := postgres.Config{
		URL: c.settings.DB, URLFile: c.settings.DBFile, OwnerURL: c.settings.DBOwner, AllowNoFsync: c.settings.AllowNoFsync, TrustPromotion: c.settings.TrustPromotion,
		Patience: c.settings.DBPatience, Fold: c.settings.DBFold, Pool: c.settings.pool(), Log: c.tel.Log, Tracers: c.tel.Tracers, Registry: c.tel.Registry,
	}
	if len(c.settings.ShardDBs) == 0 {
		return postgres.Open(ctx, home)
	}
	var set *databases.Set
	err := insist(ctx, func() (err error) {
		set, err = databases.Open(ctx, home, c.settings.ShardDBs)
		return err
	})
	return set, err
}

// Start opens the database, takes shards and serves.
func (c *core) Start(ctx context.Context) error {
	server, err := grpcserve.Listen(ctx, c.settings.Listen)
	if err != nil {
		return err
	}
	c.server.Store(server)
	if c.backend, err = c.open(ctx); err != nil {
		return errors.Join(fmt.Errorf("database: %w", err), server.Close())
	}
	if err := c.prepare(ctx); err != nil {
		return errors.Join(err, c.backend.Close(), server.Close())
	}
	c.build(backend.Owner{
		StoreID: c.settings.ID, Incarnation: incarnation.New(), Address: settings.Advertised(c.settings.Advertise, server.Addr()),
	})
	if err := c.parts.Start(ctx); err != nil {
		return errors.Join(err, c.backend.Close(), server.Close())
	}
	server.Serve(grpcserve.Config{
		MinPing: time.Second,
		TLS:     c.identity.TLS(),
		Options: append(append(c.identity.ServerOptions(), c.mesh.ServerOptions()...),
			c.tel.ServerOption(),
			grpc.ForceServerCodecV2(codec.Codec{}),
			grpc.MaxRecvMsgSize(maxReceive),
			grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20),
		),
		Register: c.service.Register,
	})
	c.awaitShards(ctx)
	c.serving.Store(true)
	c.tel.Log.Info("store is serving", "grpc", c.addr(), "shards", len(c.log.Load().Owned()))
	return nil
}

// prepare puts into the database what must be there first.
func (c *core) prepare(ctx context.Context) error {
	if err := c.agree(ctx); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	epoch := uint64(c.clock.Now().UnixMicro())
	if c.settings.NewEpoch {
		if err := c.newEpoch(ctx, epoch); err != nil {
			return err
		}
	}
	if db, ok := c.backend.(backend.Promotable); ok && c.settings.SameEpoch {
		if err := insist(ctx, func() error { return db.SameEpoch(ctx) }); err != nil {
			return fmt.Errorf("same epoch: %w", err)
		}
	}
	if err := c.learnMesh(ctx); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	if err := insist(ctx, func() error { return c.backend.SeedNamespaces(ctx, policy.Builtin()) }); err != nil {
		return fmt.Errorf("built-in namespaces: %w", err)
	}
	return nil
}

// newEpoch begins the logs of all topics anew.
func (c *core) newEpoch(ctx context.Context, epoch uint64) error {
	if err := insist(ctx, func() error { return c.backend.NewEpoch(ctx, epoch) }); err != nil {
		return fmt.Errorf("new epoch: %w", err)
	}
	c.tel.Log.Info("new epoch: the logs of all topics begin anew, at seq 1; start without --new-epoch the next time", "epoch", epoch, "shards", topic.Shards)
	return nil
}

// agree waits until the database has told the time and this machine's clock agrees with it, or the
// operator has said that the database's is right. Which of two is wrong a process can't know, and a
// message that is stored under a wrong time may be deleted too early, for good.
func (c *core) agree(ctx context.Context) error {
	for {
		err := c.clock.Set(ctx)
		if err == nil {
			return nil
		}
		c.tel.Log.Warn("the store waits until its clock and the database's agree", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(startRetry):
		}
	}
}

// insist repeats what may be repeated while the database is away: a store that starts during an
// outage waits for its end.
func insist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(startRetry):
		}
	}
}

// build makes what works on the backend, in the order in which it starts.
func (c *core) build(owner backend.Owner) {
	policies := policy.NewWatch(lister{c.backend}, c.bus, bus.Node("store", owner.StoreID), c.tel.Log)
	var later *schedule.Schedule
	log := shardlog.New(shardlog.Config{
		Backend: c.backend, Owner: owner, Writers: c.settings.Writers, Stall: c.settings.DBStall, Policies: policies.Table, Now: c.clock.Now, TopicTTL: c.settings.TopicTTL,
		Log: c.tel.Log, Metrics: c.metrics, Tracer: c.tel.Tracer("store"),
		Scheduled: func(all []backend.Scheduled) { later.Added(all) }, Known: policies.Check, Ages: c.clock.Check,
	})
	beat := &pulse{ask: c.backend.Ping}
	beat.beat(context.Background())
	watched, place := c.watched()
	c.owners = ownership.New(ownership.Config{
		Owner: owner, Databases: watched, Place: place, Shards: log, Bus: c.bus, Able: beat.check, Log: c.tel.Log, About: c.about(owner, policies),
		Registry: c.tel.Registry,
	})
	tell := newEventPublisher(c.bus, owner, policies, c.tel)
	keeper := housekeeping.New(housekeeping.Config{
		Backend: c.backend, Bus: c.bus, Mine: func() bool { return log.Owns(0) == nil }, Ages: c.clock.Check, Expired: tell.expired,
		Measure: c.measure(), Folds: c.settings.DBFold, Now: c.clock.Now, Log: c.tel.Log, Registry: c.tel.Registry,
	})
	c.dispatch = dispatch.New(dispatch.Config{Log: log, Bus: c.routers(), Logger: c.tel.Log, Registry: c.tel.Registry})
	copier := deadletter.New(deadletter.Config{
		Letters: c.backend, Ownerships: log.Ownerships, Append: c.dispatch.Append, Policies: policies.Table, Apart: c.apart(), Done: tell.deadLetter, Now: c.clock.Now,
		Logger: c.tel.Log, Registry: c.tel.Registry,
	})
	ready := prepare.New(prepare.Config{Guard: c.guard, Secret: c.secret, Registry: c.tel.Registry})
	lane := claims.New(claims.Config{
		Backend: c.backend, Away: c.backend.Away, Owner: owner, Owned: log.Ownerships, Own: log.Ownership, Sure: log.Sure, Policies: policies.Table,
		Prepare: ready.Ask, UserPlaces: c.settings.UserClaims, Log: c.tel.Log, Registry: c.tel.Registry,
	})
	policies.OnChange(func(*policy.Table) { lane.Ruled() })
	policies.Register("store", c.tel.Registry)
	mesh, _ := c.mesh.Mesh()
	c.service = service.New(service.Config{
		Backend: c.backend, Log: log, Owners: c.owners, Claims: lane, StoreID: owner.StoreID, Mesh: mesh, Now: c.clock.Now, Logger: c.tel.Log, Letters: copier.Added,
		Quotas: c.settings.quotas(), Registry: c.tel.Registry,
		Changed: func() {
			policies.Refresh()
			c.announce(bus.NamespacesChanged)
		},
		Revoked: func(version uint64) { c.changed(&c.revocations, version, bus.RevocationsChanged) },
		Teamed:  func(version uint64) { c.changed(&c.teams, version, bus.TeamsChanged) },
	})
	later = schedule.New(schedule.Config{
		Backend: c.backend, Ownerships: log.Ownerships, Append: c.dispatch.Append, Now: c.clock.Now, Logger: c.tel.Log, Registry: c.tel.Registry,
	})
	c.log.Store(log)
	c.claims.Store(lane)
	c.policies.Store(policies)
	c.pulse.Store(beat)
	c.parts.Add("pulse", beat)
	c.parts.Add("clock", c.clock)
	if set, ok := c.backend.(*databases.Set); ok {
		c.parts.Add("placement", set)
	}
	c.parts.Add("policies", policies)
	c.parts.Add("dispatch", c.dispatch)
	c.parts.Add("log", log)
	if tell.queue != nil {
		c.parts.Add("events", tell.queue)
	}
	c.parts.Add("schedule", later)
	c.parts.Add("letters", copier)
	c.parts.Add("prepare", ready)
	c.parts.Add("claims", lane)
	c.parts.Add("housekeeping", keeper)
	c.parts.Add("ownership", c.owners)
	if db, ok := c.backend.(backend.Outboxes); ok && c.bus != nil {
		c.parts.Add("outbox", outbox.New(outbox.Config{
			Database: db, Owner: owner, Mine: func() bool { return log.Owns(0) == nil }, Able: c.bus.Connected, Request: c.bus.Request,
			Log: c.tel.Log, Registry: c.tel.Registry,
		}))
	}
	if c.bus != nil {
		c.neighbours.Store(bus.NewNeighbours(c.bus, &meshv1.MeshHello{StoreId: owner.StoreID, Address: owner.Address}))
		c.neighbours.Load().Register(c.tel.Registry)
		c.parts.Add("neighbours", c.neighbours.Load())
	}
}

// measure is how a database is measured that can be; nil: it can't.
func (c *core) measure() func(context.Context) error {
	if db, ok := c.backend.(interface {
		Measure(ctx context.Context) error
	}); ok {
		return db.Measure
	}
	return nil
}

// about tells the mesh what a beat says beside the shards.
func (c *core) about(owner backend.Owner, policies *policy.Watch) func(*meshv1.StoreBeat) {
	http, program := settings.Reach(c.http(), owner.Address), c.settings.Version
	return func(b *meshv1.StoreBeat) {
		b.HttpAddress, b.Program, b.SentAt, b.NamespacesVersion = http, program, uint64(time.Now().UnixMicro()), policies.Version()
		b.Time, b.RevocationsVersion, b.TeamsVersion = uint64(c.clock.Now().UnixMicro()), c.revocations.Load(), c.teams.Load()
	}
}

// watched are the databases in which stores are watched, and which of them a shard is in.
func (c *core) watched() (all []ownership.Watched, place func(shard int) int) {
	set, ok := c.backend.(backend.Several)
	if !ok {
		return []ownership.Watched{c.backend}, func(int) int { return 0 }
	}
	for _, db := range set.Databases() {
		all = append(all, db)
	}
	return all, set.Place
}

// apart says which shards are in another database than dead letters are.
func (c *core) apart() func(shard int) bool {
	set, ok := c.backend.(backend.Several)
	if !ok {
		return nil
	}
	return func(shard int) bool { return set.Place(shard) != 0 }
}

// routers is how they are reached; nil: not at all.
func (c *core) routers() dispatch.Bus {
	if c.bus == nil {
		return nil
	}
	return c.bus
}

// announce tells every tier that something changed. Without NATS they notice within seconds.
func (c *core) announce(subject string) {
	if c.bus == nil {
		return
	}
	if err := c.bus.Publish(subject, nil); err != nil {
		c.tel.Log.Debug("publishing a change failed", "subject", subject, "error", err)
	}
}

// changed has the beats of this store name a version, and tells of it at once.
func (c *core) changed(known *atomic.Uint64, version uint64, subject string) {
	for have := known.Load(); version > have && !known.CompareAndSwap(have, version); have = known.Load() {
	}
	c.announce(subject)
}

func (c *core) awaitShards(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstShards)
	defer cancel()
	if err := c.log.Load().Ready(ctx); err != nil {
		c.tel.Log.Warn("the store runs but owns no shards yet", "error", err)
	}
}

// Stop is a planned one: not ready, nothing new is taken, what is queued is committed and answered,
// the shards are given back.
func (c *core) Stop(ctx context.Context) error {
	c.serving.Store(false)
	c.server.Load().Leave()
	c.owners.Leave()
	c.log.Load().Drain()
	c.claims.Load().Drain()
	c.service.End()
	patience, cancel := grpcserve.Patience(ctx)
	defer cancel()
	return errors.Join(c.server.Load().Stop(patience), c.parts.Stop(ctx), c.backend.Close())
}

// lister is a backend as package policy asks it.
type lister struct{ backend.Namespaces }

func (l lister) ListNamespaces(ctx context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	version, all, err := l.Namespaces.ListNamespaces(ctx, req.GetHaveVersion())
	if err != nil {
		return nil, err
	}
	return &meshv1.ListNamespacesResponse{Version: version, Namespaces: all}, nil
}
