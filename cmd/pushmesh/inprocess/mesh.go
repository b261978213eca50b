// Package inprocess runs a whole mesh in this process: an embedded NATS server, and all tiers with
// the same code as in production between them. `pushmesh dev` is one; tests have theirs.
package inprocess

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/readiness"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/services/compute"
	"github.com/pushmesh/pushmesh/services/edge"
	"github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
)

// Settings of a mesh: those of each node, which is told of NATS, of all stores and of all compute
// nodes when it starts.
type Settings struct {
	// NATS is the URL of a server that others use as well; "": an embedded one.
	NATS     string
	Stores   []store.Settings
	Computes []compute.Settings
	Routers  []router.Settings
	Edges    []edge.Settings
}

// Mesh is a whole mesh. It is a lifecycle.Part: each node is made when the ones it calls already
// listen, because only then are their addresses known.
type Mesh struct {
	set   Settings
	parts lifecycle.Stack
	nats  NATS

	Stores   []*Node[*store.Store]
	Computes []*Node[*compute.Compute]
	Routers  []*Node[*router.Router]
	Edges    []*Node[*edge.Edge]
}

// served is what every node is: something that serves a tier's API, and health over HTTP.
type served interface {
	lifecycle.Part
	Addr() string
	HTTPAddr() string
}

// New makes a mesh that does not run yet.
func New(s Settings) *Mesh {
	m := &Mesh{set: s}
	if s.NATS == "" {
		m.parts.Add("nats", &m.nats)
	}
	m.Stores = add(m, "store", s.Stores, func(ctx context.Context, s store.Settings) (*store.Store, error) {
		plainly(&s.Flags)
		s.NATS = m.NATS()
		return store.New(ctx, s)
	})
	m.Computes = add(m, "compute", s.Computes, func(ctx context.Context, s compute.Settings) (*compute.Compute, error) {
		plainly(&s.Flags)
		s.Stores = Addrs(m.Stores)
		return compute.New(ctx, s)
	})
	m.Routers = add(m, "router", s.Routers, func(ctx context.Context, s router.Settings) (*router.Router, error) {
		plainly(&s.Flags)
		s.NATS, s.Stores, s.Computes = m.NATS(), Addrs(m.Stores), Addrs(m.Computes)
		return router.New(ctx, s)
	})
	m.Edges = add(m, "edge", s.Edges, func(ctx context.Context, s edge.Settings) (*edge.Edge, error) {
		plainly(&s.Flags)
		s.NATS, s.Stores, s.Computes = m.NATS(), Addrs(m.Stores), Addrs(m.Computes)
		return edge.New(ctx, s)
	})
	return m
}

// plainly has a node without a certificate do without: all is in one process.
func plainly(f *tierauth.Flags) { f.PlainTiers = f.PlainTiers || f.MeshCert == "" }

// add puts the nodes of a tier on the stack, each with its settings. A tier's only node is called
// like the tier in errors.
func add[T served, S any](m *Mesh, tier string, settings []S, make func(context.Context, S) (T, error)) (nodes []*Node[T]) {
	for i, s := range settings {
		n := &Node[T]{make: func(ctx context.Context) (T, error) { return make(ctx, s) }}
		nodes = append(nodes, n)
		name := tier
		if len(settings) > 1 {
			name = fmt.Sprintf("%s %d", tier, i+1)
		}
		m.parts.Add(name, n)
	}
	return nodes
}

// Start starts everything.
func (m *Mesh) Start(ctx context.Context) error { return m.parts.Start(ctx) }

// Stop ends everything as planned, the edges first.
func (m *Mesh) Stop(ctx context.Context) error { return m.parts.Stop(ctx) }

// NATS is the URL of the server, once started.
func (m *Mesh) NATS() string {
	if m.set.NATS != "" {
		return m.set.NATS
	}
	return m.nats.URL()
}

// Ready waits until every node is ready and misses nothing.
func (m *Mesh) Ready(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, addrs := range [][]string{httpAddrs(m.Stores), httpAddrs(m.Computes), httpAddrs(m.Routers), httpAddrs(m.Edges)} {
		for _, addr := range addrs {
			if err := readiness.Await(ctx, addr, nil); err != nil {
				return fmt.Errorf("%s: %w", addr, err)
			}
		}
	}
	return nil
}

// Addrs of nodes that were started.
func Addrs[T served](nodes []*Node[T]) (addrs []string) {
	for _, n := range nodes {
		addrs = append(addrs, n.Part.Addr())
	}
	return addrs
}

func httpAddrs[T served](nodes []*Node[T]) (addrs []string) {
	for _, n := range nodes {
		addrs = append(addrs, n.Part.HTTPAddr())
	}
	return addrs
}

// Node is one node of a tier. It can be stopped and started again, as another one with the same
// settings: where these name its address, on that.
type Node[T served] struct {
	// Part is the node that runs, or ran last.
	Part T

	make func(context.Context) (T, error)
	runs bool
}

// Start makes the node and starts it; it must not run.
func (n *Node[T]) Start(ctx context.Context) error {
	made, err := n.make(ctx)
	if err != nil {
		return err
	}
	n.Part = made
	if err := made.Start(ctx); err != nil {
		return err
	}
	n.runs = true
	return nil
}

// Stop stops the node, if it runs.
func (n *Node[T]) Stop(ctx context.Context) error {
	if !n.runs {
		return nil
	}
	n.runs = false
	return n.Part.Stop(ctx)
}
