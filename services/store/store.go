// Package store is the tier that persists: the log of durable topics, sessions, policies and dead
// letters, each shard owned by one store, on Postgres or SQLite.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// Store is one node of the store tier. It is a lifecycle.Part.
type Store struct {
	lifecycle.Stack
	core *core
	http *health.Server
}

// Telemetry of the node: its log level and ratio of traces may change while it runs.
func (s *Store) Telemetry() *telemetry.Telemetry { return s.core.tel }

// New makes a store; nothing runs before Start. Start waits for the database (health, metrics and
// the reason are served meanwhile), and then a little for the shards.
func New(ctx context.Context, s Settings) (*Store, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("store settings: %w", err)
	}
	s = s.withDefaults()
	tel, err := telemetry.New(ctx, telemetry.Config{
		Service: "store", Instance: s.ID, Version: s.Version, SampleRatio: s.TraceRatio, LogLevel: s.LogLevel,
	})
	if err != nil {
		return nil, err
	}
	checks := &health.Checks{}
	c, err := newCore(s, tel)
	if err != nil {
		return nil, fmt.Errorf("store settings: %w", err)
	}
	if c.identity, err = tierauth.Open(tierauth.Config{Flags: s.Flags, Tier: tierauth.Store, Log: tel.Log, Registry: tel.Registry}); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	st := &Store{core: c, http: health.NewServer(s.HTTP, checks, tel.Registry)}
	c.http = st.HTTPAddr
	checks.Require("serving", c.checkServing)
	checks.Require("shards", c.checkShards)
	checks.Require(c.databaseName(), c.checkDatabase)
	checks.Require("namespaces", c.checkNamespaces((*policy.Watch).Check))
	checks.Report("namespaces understood", c.checkNamespaces((*policy.Watch).CheckUnderstood))
	checks.Report("breaker", c.checkBreaker)
	checks.Report("claims", c.checkClaims)
	checks.Report("clock", c.checkClock)
	checks.Report("fencing", c.checkFencing)
	checks.Report("webhook secret", c.secret.Check)
	if s.TrustPromotion {
		checks.Report("promotion", c.checkPromotion)
	}
	st.Add("telemetry", tel)
	st.Add("http", st.http)
	st.Add("profiles", health.NewProfiles(s.PprofAddr, tel.Log))
	if c.identity != nil {
		checks.Report("mesh certificate", c.identity.Check)
		st.Add("mesh certificate", c.identity)
	}
	if !s.Standalone {
		c.bus = bus.New(bus.Config{URL: s.NATS, Name: "store-" + s.ID, Mesh: c.mesh, Log: tel.Log, Secure: c.identity.NATS(s.NATS, s.NATSFlags)})
		c.bus.Register(tel.Registry)
		checks.Report("nats", c.bus.Check)
		checks.Report("mesh", c.checkMesh)
		st.Add("nats", c.bus)
	}
	st.Add("core", c)
	return st, nil
}

// Addr is the address of the gRPC API.
func (s *Store) Addr() string { return s.core.addr() }

// HTTPAddr is the address of health and metrics.
func (s *Store) HTTPAddr() string { return s.http.Addr() }

// pulse is what is known of the database: asked every second by a goroutine of its own. It is a
// lifecycle.Part.
type pulse struct {
	ask   func(ctx context.Context) error
	group *lifecycle.Group
	last  atomic.Pointer[error]
}

const (
	pulseEvery   = time.Second
	pulseTimeout = 2 * time.Second
)

// Start begins to ask.
func (p *pulse) Start(context.Context) error {
	p.group = lifecycle.NewGroup(context.Background())
	p.group.Go("store-pulse", func(ctx context.Context) {
		p.beat(ctx)
		lifecycle.Every(ctx, pulseEvery, func(time.Time) { p.beat(ctx) })
	})
	return nil
}

func (p *pulse) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	err := p.ask(ctx)
	p.last.Store(&err)
}

// Stop ends it.
func (p *pulse) Stop(ctx context.Context) error { return p.group.Stop(ctx) }

// check is the last answer.
func (p *pulse) check() error {
	if last := p.last.Load(); last != nil {
		return *last
	}
	return errors.New("not checked yet")
}
