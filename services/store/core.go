package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/housekeeping"
	"github.com/pushmesh/pushmesh/services/store/internal/ownership"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
	"github.com/pushmesh/pushmesh/services/store/internal/service"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
	"github.com/pushmesh/pushmesh/services/store/internal/sqlite"
)

const (
	// maxReceive lets a router's batch of large messages in.
	maxReceive = 16 << 20
	// firstShards is how long Start waits for the shards. Without them the store runs, and is not ready.
	firstShards = 5 * time.Second
)

// core is everything that needs the database. It is a lifecycle.Part: Start opens the database and builds the rest on it.
type core struct {
	settings Settings
	tel      *telemetry.Telemetry
	metrics  *shardlog.Metrics
	bus      *bus.Bus // nil: standalone

	serving  atomic.Bool
	log      atomic.Pointer[shardlog.Log]
	pulse    atomic.Pointer[pulse]
	listener atomic.Pointer[net.Listener]

	backend backend.Backend
	owners  *ownership.Manager
	service *service.Service
	server  *grpc.Server
	health  *grpchealth.Server
	served  chan error
	parts   lifecycle.Stack // on the backend, below the server
}

func newCore(s Settings, tel *telemetry.Telemetry) *core {
	return &core{settings: s, tel: tel, metrics: shardlog.NewMetrics(tel.Registry), served: make(chan error, 1)}
}

func (c *core) databaseName() string {
	if c.settings.postgres() {
		return "postgres"
	}
	return "database"
}

func (c *core) addr() string {
	if l := c.listener.Load(); l != nil {
		return (*l).Addr().String()
	}
	return ""
}

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
	return errors.New("no shards claimed yet")
}

func (c *core) checkDatabase() error {
	if p := c.pulse.Load(); p != nil {
		return p.check()
	}
	return errors.New("not opened yet")
}

func (c *core) open(ctx context.Context) (backend.Backend, error) {
	if c.settings.sqlite() {
		return sqlite.Open(ctx, strings.TrimPrefix(c.settings.DB, "sqlite:"))
	}
	return postgres.Open(ctx, postgres.Config{
		URL: c.settings.DB, AllowNoFsync: c.settings.AllowNoFsync, Log: c.tel.Log, Tracers: c.tel.Tracers, Registry: c.tel.Registry,
	})
}

// Start opens the database, claims shards and serves.
func (c *core) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.settings.Listen)
	if err != nil {
		return err
	}
	c.listener.Store(&listener)
	if c.backend, err = c.open(ctx); err != nil {
		return errors.Join(fmt.Errorf("database: %w", err), listener.Close())
	}
	if err := c.prepare(ctx); err != nil {
		return errors.Join(err, c.backend.Close(), listener.Close())
	}
	c.build(backend.Owner{
		StoreID: c.settings.ID, Incarnation: uint64(time.Now().UnixMicro()), Address: advertised(c.settings.Advertise, listener.Addr()),
	})
	if err := c.parts.Start(ctx); err != nil {
		return errors.Join(err, c.backend.Close(), listener.Close())
	}
	go func() { c.served <- c.server.Serve(listener) }() // ends with Stop
	c.awaitShards(ctx)
	c.serving.Store(true)
	c.tel.Log.Info("store serves", "grpc", c.addr(), "shards", len(c.log.Load().Owned()))
	return nil
}

// prepare puts into the database what must be there first.
func (c *core) prepare(ctx context.Context) error {
	if c.settings.NewEpoch {
		if err := c.backend.NewEpoch(ctx, uint64(time.Now().UnixMicro())); err != nil {
			return fmt.Errorf("new epoch: %w", err)
		}
	}
	if err := c.backend.SeedNamespaces(ctx, policy.Builtin()); err != nil {
		return fmt.Errorf("built-in namespaces: %w", err)
	}
	return nil
}

// build makes what works on the backend, in the order in which it starts.
func (c *core) build(owner backend.Owner) {
	policies := policy.NewWatch(lister{c.backend}, c.bus, c.tel.Log)
	log := shardlog.New(shardlog.Config{
		Backend: c.backend, Owner: owner, Writers: c.settings.Writers, Policies: policies.Table, Now: time.Now,
		Log: c.tel.Log, Metrics: c.metrics, Tracer: c.tel.Tracer("store"),
	})
	beat := &pulse{ask: c.backend.Ping}
	beat.beat(context.Background())
	c.owners = ownership.New(ownership.Config{
		Owner: owner, Backend: c.backend, Shards: log, Bus: c.bus, Able: beat.check, Now: time.Now, Log: c.tel.Log,
	})
	keeper := housekeeping.New(housekeeping.Config{
		Backend: c.backend, Bus: c.bus, Mine: func() bool { return log.Owns(0) == nil }, Now: time.Now, Log: c.tel.Log,
	})
	c.service = service.New(service.Config{
		Backend: c.backend, Log: log, Owners: c.owners, Now: time.Now, Logger: c.tel.Log,
		Changed: func() {
			policies.Refresh()
			c.announce()
		},
	})
	c.log.Store(log)
	c.pulse.Store(beat)
	c.parts.Add("pulse", beat)
	c.parts.Add("policies", policies)
	c.parts.Add("log", log)
	c.parts.Add("housekeeping", keeper)
	c.parts.Add("ownership", c.owners)
	c.server = grpc.NewServer(
		c.tel.ServerOption(),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	c.service.Register(c.server)
	c.health = grpchealth.NewServer()
	grpc_health_v1.RegisterHealthServer(c.server, c.health)
	reflection.Register(c.server)
}

// announce tells every tier that namespaces changed. Without NATS they notice within seconds.
func (c *core) announce() {
	if c.bus == nil {
		return
	}
	if err := c.bus.Publish(bus.NamespacesChanged, nil); err != nil {
		c.tel.Log.Debug("namespaces changed", "error", err)
	}
}

func (c *core) awaitShards(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstShards)
	defer cancel()
	if err := c.log.Load().Ready(ctx); err != nil {
		c.tel.Log.Warn("the store runs, without its shards so far", "error", err)
	}
}

// Stop is a planned one: not ready, nothing new is taken, what is queued is committed and answered, the shards are given back.
func (c *core) Stop(ctx context.Context) error {
	c.serving.Store(false)
	c.health.Shutdown()
	c.owners.Leave()
	c.log.Load().Drain()
	c.service.End()
	err := c.stopServer(ctx)
	return errors.Join(err, c.parts.Stop(ctx), c.backend.Close())
}

func (c *core) stopServer(ctx context.Context) error {
	patience, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		patience, cancel = context.WithTimeout(ctx, time.Until(deadline)*2/3)
	}
	defer cancel()
	done := make(chan struct{})
	go func() {
		c.server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return <-c.served
	case <-patience.Done():
		c.server.Stop()
		<-done
		return errors.Join(errors.New("some calls had to be cut off"), <-c.served)
	}
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
