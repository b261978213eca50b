package dev

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/readiness"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/compute"
	"github.com/pushmesh/pushmesh/services/edge"
	"github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
)

// Mesh is a whole mesh. It is a lifecycle.Part: each tier is made when the ones it calls already
// listen, because only then are their addresses known.
type Mesh struct {
	set   Settings
	parts lifecycle.Stack

	nats    natsServer
	store   *store.Store
	compute *compute.Compute
	router  *router.Router
	edge    *edge.Edge
}

// New makes a mesh that does not run yet.
func New(s Settings) (*Mesh, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := &Mesh{set: s.withDefaults()}
	m.parts.Add("nats", &m.nats)
	add(m, "store", &m.store, m.newStore)
	add(m, "compute", &m.compute, m.newCompute)
	add(m, "router", &m.router, m.newRouter)
	add(m, "edge", &m.edge, m.newEdge)
	m.parts.Add("readiness", lifecycle.Funcs{OnStart: m.awaitReady})
	return m, nil
}

// add puts a tier on the stack that is made when its turn to start has come.
func add[T lifecycle.Part](m *Mesh, name string, tier *T, make func(context.Context) (T, error)) {
	m.parts.Add(name, lifecycle.Funcs{
		OnStart: func(ctx context.Context) error {
			made, err := make(ctx)
			if err != nil {
				return err
			}
			*tier = made
			return made.Start(ctx)
		},
		OnStop: func(ctx context.Context) error { return (*tier).Stop(ctx) },
	})
}

// Start starts everything; it returns once all tiers are ready.
func (m *Mesh) Start(ctx context.Context) error {
	if err := os.MkdirAll(m.set.Data, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return m.parts.Start(ctx)
}

// readyWithin bounds how long the tiers may take to find each other.
const readyWithin = 30 * time.Second

func (m *Mesh) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	a := m.Addrs()
	for tier, addr := range map[string]string{"store": a.StoreHTTP, "compute": a.ComputeHTTP, "router": a.RouterHTTP, "edge": a.EdgeHTTP} {
		if err := readiness.Await(ctx, addr, nil); err != nil {
			return fmt.Errorf("%s: %w", tier, err)
		}
	}
	return nil
}

// Stop ends everything as planned, the edge first.
func (m *Mesh) Stop(ctx context.Context) error { return m.parts.Stop(ctx) }

// Database is the path of the database file.
func (m *Mesh) Database() string { return filepath.Join(m.set.Data, "pushmesh.db") }

// Addrs are the real addresses of a mesh that was started.
type Addrs struct {
	Edge, EdgeHTTP       string
	Router, RouterHTTP   string
	Compute, ComputeHTTP string
	Store, StoreHTTP     string
	NATS                 string
}

// Addrs says where everything listens.
func (m *Mesh) Addrs() Addrs {
	return Addrs{
		Edge: m.edge.Addr(), EdgeHTTP: m.edge.HTTPAddr(),
		Router: m.router.Addr(), RouterHTTP: m.router.HTTPAddr(),
		Compute: m.compute.Addr(), ComputeHTTP: m.compute.HTTPAddr(),
		Store: m.store.Addr(), StoreHTTP: m.store.HTTPAddr(),
		NATS: m.nats.URL(),
	}
}
