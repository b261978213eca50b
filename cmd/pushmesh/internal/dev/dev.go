package dev

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/playground"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// Mesh is a whole mesh, one node of each tier, and the page to play with it. It is a
// lifecycle.Part.
type Mesh struct {
	set   Settings
	mesh  *inprocess.Mesh
	parts lifecycle.Stack
	page  *playground.Playground // nil: none
}

// New makes a mesh that does not run yet.
func New(s Settings) (*Mesh, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	cores.Spare(0)
	return &Mesh{set: s.withDefaults()}, nil
}

// Start starts everything; it returns once all tiers are ready.
func (m *Mesh) Start(ctx context.Context) error {
	if err := os.MkdirAll(m.set.Data, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if !m.set.NoPlayground {
		page, err := playground.Listen(m.set.Playground)
		if err != nil {
			return fmt.Errorf("playground: %w (--playground-listen chooses another address, --no-playground does without)", err)
		}
		m.page = page
		// the server may have closed it
		m.parts.Add("the playground's address", lifecycle.Funcs{OnStop: func(context.Context) error { _ = page.Close(); return nil }})
	}
	m.mesh = inprocess.New(m.tiers())
	m.parts.Add("mesh", m.mesh)
	m.parts.Add("tiers that are ready", lifecycle.Funcs{OnStart: func(ctx context.Context) error { return m.mesh.Ready(ctx, readyWithin) }})
	if m.page != nil {
		m.parts.Add("playground", lifecycle.Funcs{
			OnStart: func(ctx context.Context) error { return m.page.Start(ctx, m.Addrs().Edge, m.Addrs().Router) },
			OnStop:  m.page.Stop,
		})
	}
	return m.parts.Start(ctx)
}

// readyWithin bounds how long the tiers may take to find each other.
const readyWithin = 30 * time.Second

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
	Playground           string // the page's URL; "": there is none
}

// Addrs is where everything listens.
func (m *Mesh) Addrs() Addrs {
	store, compute, router, edge := m.mesh.Stores[0].Part, m.mesh.Computes[0].Part, m.mesh.Routers[0].Part, m.mesh.Edges[0].Part
	addrs := Addrs{
		Edge: edge.Addr(), EdgeHTTP: edge.HTTPAddr(),
		Router: router.Addr(), RouterHTTP: router.HTTPAddr(),
		Compute: compute.Addr(), ComputeHTTP: compute.HTTPAddr(),
		Store: store.Addr(), StoreHTTP: store.HTTPAddr(),
		NATS: m.mesh.NATS(),
	}
	if m.page != nil {
		addrs.Playground = m.page.URL()
	}
	return addrs
}
