package router

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	broadcastRate = 10_000 // messages a second
	rounds        = 3
	// wideTopics are in one frame of the publisher. As many more are not wanted by a quarter of the
	// edges.
	wideTopics = 10
)

// broadcast compares, for topics that every edge wants, or three quarters of them, what it costs to
// send each edge its own copy with sending one for all: two meshes that take turns and get as many
// messages a second. One edge of each has connections, the others are held.
func (b *bench) broadcast(ctx context.Context) error {
	for _, edges := range []int{4, 8, 16} {
		if err := b.bothWays(ctx, edges); err != nil {
			return fmt.Errorf("%d edges: %w", edges, err)
		}
	}
	return nil
}

// wide is a mesh with edges that are held.
type wide struct {
	*local.Mesh
	held []*suite.Worker
}

func (b *bench) wide(ctx context.Context, from, edges int) (w *wide, err error) {
	defer try.Catch(&err)
	programs := b.Programs
	programs.RouterArgs = append(slices.Clone(programs.RouterArgs), "--broadcast-from", strconv.Itoa(from))
	m := try.Get(b.Dir.StartMesh(ctx, programs, 1))
	w = &wide{Mesh: m}
	for i := 1; i < edges; i++ {
		to := 2 * wideTopics
		if i > edges-1-edges/4 {
			to = wideTopics
		}
		p, err := b.hold(m, fmt.Sprintf("hold-%d", i), wideTopic, 0, to)
		if err != nil {
			w.stop()
			return nil, err
		}
		w.held = append(w.held, p)
	}
	return w, nil
}

func (w *wide) stop() {
	for _, p := range w.held {
		_ = p.Dismiss()
	}
	w.Stop()
}

func (b *bench) bothWays(ctx context.Context, edges int) (err error) {
	defer try.Catch(&err)
	var meshes [2]*wide
	for way, from := range []int{1_000_000, 2} {
		w := try.Get(b.wide(ctx, from, edges))
		defer w.stop()
		meshes[way] = w
	}
	try.Do(b.compare(ctx, meshes, edges, edges, 0))
	return b.compare(ctx, meshes, edges, edges-edges/4, wideTopics)
}

// compare publishes to the topics from first on, by both ways in turn.
func (b *bench) compare(ctx context.Context, meshes [2]*wide, edges, wanted, first int) (err error) {
	defer try.Catch(&err)
	var perWay [2][]float64 // CPU µs of router, NATS and edges together, for a message
	var said [2]string
	for range rounds {
		for way, m := range meshes {
			o := try.Get(b.do(ctx, m.load(first, b.Span/10)))
			perWay[way] = append(perWay[way], o.cpu["router"]+o.cpu["nats"]+o.cpu["edges"])
			said[way] = o.used
		}
	}
	for way := range perWay {
		slices.Sort(perWay[way])
	}
	each, one := perWay[0][rounds/2], perWay[1][rounds/2]
	b.Add(table.Figure(fmt.Sprintf("CPU of a message, broadcast / a copy each, %d of %d edges want it", wanted, edges), one/each, "×",
		fmt.Sprintf("router, NATS and edges: %.1f (%.1f to %.1f) / %.1f (%.1f to %.1f) µs at %d/s, medians of %d; the last: %s / %s",
			one, perWay[1][0], perWay[1][rounds-1], each, perWay[0][0], perWay[0][rounds-1], broadcastRate, rounds, said[1], said[0])))
	return nil
}

// wideTopic is the pattern of the topics.
const wideTopic = "live/%d"

// load publishes to topics that have a subscriber on the edge that takes connections.
func (w *wide) load(first int, span time.Duration) *load {
	edges := suite.Of("edges", w.Edges...)
	for _, p := range w.held {
		edges.PIDs = append(edges.PIDs, p.PID())
	}
	publish := job{Kind: "due-frames", Rate: broadcastRate, Span: span, Addr: w.Router.Addr, Topics: names(first + wideTopics)[first:], Size: payload}
	return &load{
		name: "broadcast", publish: publish, copies: 1, warm: span / 2,
		servers:   []suite.Consumer{suite.Of("router", w.Router), suite.Of("nats", w.NATS), edges},
		subscribe: []job{{Kind: "subs", Addr: w.Edges[0].Addr, Topics: publish.Topics}},
	}
}
