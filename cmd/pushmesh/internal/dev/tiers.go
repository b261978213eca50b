package dev

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/settings"

	"github.com/pushmesh/pushmesh/services/compute"
	"github.com/pushmesh/pushmesh/services/edge"
	"github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
)

// Ids of the tiers: one of each, so the names need no suffix.
const (
	storeID   = "dev-store"
	computeID = "dev-compute"
	routerID  = "dev-router"
	edgeID    = "dev-edge"
)

func (m *Mesh) newStore(ctx context.Context) (*store.Store, error) {
	return store.New(ctx, store.Settings{
		ID: storeID, Listen: m.set.Store, HTTP: m.set.StoreHTTP, LogLevel: m.set.LogLevel, Grace: m.set.Grace,
		NATS: m.nats.URL(), DB: "sqlite:" + m.Database(),
	})
}

func (m *Mesh) newCompute(ctx context.Context) (*compute.Compute, error) {
	return compute.New(ctx, compute.Settings{
		ID: computeID, Listen: m.set.Compute, HTTP: m.set.ComputeHTTP, LogLevel: m.set.LogLevel, Grace: m.set.Grace,
		Stores: []string{m.store.Addr()}, Workers: workers(),
	})
}

// appendWait lets what is published at once wait its turn, rather than be refused for the sake of
// neighbours that one machine has not.
const appendWait = time.Second

func (m *Mesh) newRouter(ctx context.Context) (*router.Router, error) {
	return router.New(ctx, router.Settings{
		ID: routerID, Listen: m.set.Router, HTTP: m.set.RouterHTTP, LogLevel: m.set.LogLevel, Grace: m.set.Grace,
		NATS: m.nats.URL(), Stores: []string{m.store.Addr()}, Computes: []string{m.compute.Addr()},
		ProducerRate: m.set.ProducerRate, ProducerInFlight: m.set.ProducerInFlight, AppendWait: appendWait,
	})
}

func (m *Mesh) newEdge(ctx context.Context) (*edge.Edge, error) {
	return edge.New(ctx, edge.Settings{
		ID: edgeID, Listen: m.set.Edge, HTTP: m.set.EdgeHTTP, LogLevel: m.set.LogLevel, Grace: m.set.Grace,
		NATS: m.nats.URL(), Stores: []string{m.store.Addr()}, Computes: []string{m.compute.Addr()}, Loops: m.set.Loops, Poller: m.set.Poller,
		CatchupRate: settings.Default[edge.Settings]().CatchupRate,
	})
}
