package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/cores"
)

// Mesh is a whole mesh, one node of each tier. It is a lifecycle.Part.
type Mesh struct {
	set  Settings
	mesh *inprocess.Mesh
}

// New makes a mesh that does not run yet.
func New(s Settings) (*Mesh, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := &Mesh{set: s.withDefaults()}
	cores.Spare(0)
	m.mesh = inprocess.New(m.tiers())
	return m, nil
}

// Start starts everything; it returns once all tiers are ready.
func (m *Mesh) Start(ctx context.Context) error {
	if err := os.MkdirAll(m.set.Data, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := m.mesh.Start(ctx); err != nil {
		return err
	}
	if err := m.mesh.Ready(ctx, readyWithin); err != nil {
		return errors.Join(err, m.mesh.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

// readyWithin bounds how long the tiers may take to find each other.
const readyWithin = 30 * time.Second

// Stop ends everything as planned, the edge first.
func (m *Mesh) Stop(ctx context.Context) error { return m.mesh.Stop(ctx) }

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

// Addrs is where everything listens.
func (m *Mesh) Addrs() Addrs {
	store, compute, router, edge := m.mesh.Stores[0].Part, m.mesh.Computes[0].Part, m.mesh.Routers[0].Part, m.mesh.Edges[0].Part
	return Addrs{
		Edge: edge.Addr(), EdgeHTTP: edge.HTTPAddr(),
		Router: router.Addr(), RouterHTTP: router.HTTPAddr(),
		Compute: compute.Addr(), ComputeHTTP: compute.HTTPAddr(),
		Store: store.Addr(), StoreHTTP: store.HTTPAddr(),
		NATS: m.mesh.NATS(),
	}
}
