package dev

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
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

// appendWait lets what is published at once wait its turn, rather than be refused for the sake of
// neighbours that one machine has not.
const appendWait = time.Second

// tiers are what each node gets, besides the addresses of the others.
func (m *Mesh) tiers() inprocess.Settings {
	s := m.set
	return inprocess.Settings{
		Stores: []store.Settings{{
			ID: storeID, Listen: s.Store, HTTP: s.StoreHTTP, LogLevel: s.LogLevel, Grace: s.Grace, DB: "sqlite:" + m.Database(),
			// services under development are on this machine
			OutboundAllow: []string{"127.0.0.0/8", "::1"},
		}},
		Computes: []compute.Settings{{
			ID: computeID, Listen: s.Compute, HTTP: s.ComputeHTTP, LogLevel: s.LogLevel, Grace: s.Grace, Workers: workers(),
		}},
		Routers: []router.Settings{{
			ID: routerID, Listen: s.Router, HTTP: s.RouterHTTP, LogLevel: s.LogLevel, Grace: s.Grace,
			ProducerRate: s.ProducerRate, ProducerInFlight: s.ProducerInFlight, AppendWait: appendWait,
			Open: true, // as below
		}},
		Edges: []edge.Settings{{
			ID: edgeID, Listen: s.Edge, HTTP: s.EdgeHTTP, LogLevel: s.LogLevel, Grace: s.Grace, Loops: s.Loops, Poller: s.Poller,
			// as the address is on loopback, who reaches it is on this machine
			Open:             true,
			CatchupRate:      settings.Default[edge.Settings]().CatchupRate,
			WebSocketOrigins: m.origins(),
		}},
	}
}

// origins are the pages that may connect: the playground beside those that may anyway.
func (m *Mesh) origins() []string {
	origins := m.set.WebSocketOrigins
	if m.page == nil {
		return origins
	}
	if len(origins) == 0 {
		origins = []string{"same-host"}
	}
	return append(slices.Clone(origins), m.page.Origin())
}
