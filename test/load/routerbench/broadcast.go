package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	broadcastRate = 20_000 // messages a second
	rounds        = 3
)

// broadcast compares, for topics that every edge wants, or all but one, what it costs to send each edge its own copy with sending one for
// all: two meshes that take turns and get as many messages a second.
func (b *bench) broadcast(ctx context.Context) error {
	for _, c := range []struct{ edges, wanted int }{{2, 2}, {3, 3}, {4, 4}, {4, 3}} {
		if err := b.bothWays(ctx, c.edges, c.wanted); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) bothWays(ctx context.Context, edges, wanted int) error {
	var meshes [2]*local.Mesh
	for way, from := range []int{1_000_000, 2} {
		programs := b.programs
		programs.RouterArgs = append(slices.Clone(programs.RouterArgs), "--broadcast-from", strconv.Itoa(from))
		m, err := b.dir.StartMesh(ctx, programs, edges)
		if err != nil {
			return err
		}
		defer m.Stop()
		meshes[way] = m
	}
	var perWay [2][]float64 // CPU µs for a message of router, NATS and edges together
	var said [2]string
	for range rounds {
		for way, m := range meshes {
			o, err := b.do(ctx, wideLoad(m, wanted, b.span/4))
			if err != nil {
				return fmt.Errorf("%d edges: %w", edges, err)
			}
			perWay[way] = append(perWay[way], o.cpu["router"]+o.cpu["nats"]+o.cpu["edges"])
			said[way] = o.used
		}
	}
	for way := range perWay {
		slices.Sort(perWay[way])
	}
	each, one := perWay[0][rounds/2], perWay[1][rounds/2]
	b.add(table.Figure(fmt.Sprintf("CPU of a message, broadcast / a copy each, %d of %d edges want it", wanted, edges), one/each, "×",
		fmt.Sprintf("router, NATS and edges: %.1f / %.1f µs at %d/s, medians of %d; the last: %s / %s", one, each, broadcastRate, rounds, said[1], said[0])))
	return nil
}

// wideTopics are in one frame of the publisher.
const wideTopics = 10

// wideLoad publishes to topics that have a subscriber on some edges each.
func wideLoad(m *local.Mesh, wanted int, span time.Duration) *load {
	publish := job{Kind: "due-frames", Rate: broadcastRate, Span: span, Addr: m.Router.Addr, Topics: names(wideTopics), Size: payload}
	l := &load{name: "broadcast", publish: publish, copies: int64(wanted), servers: []consumer{
		{"router", []*local.Process{m.Router}}, {"nats", []*local.Process{m.NATS}}, {"edges", m.Edges},
	}}
	for i := range wanted {
		l.subscribe = append(l.subscribe, job{Kind: "subs", Addr: m.Edges[i].Addr, Topics: publish.Topics})
	}
	return l
}
