package router

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	payload = 128 // bytes
	topics  = 100 // of a publisher, each with one subscriber
	frames  = 32  // that may be unanswered, each with a message for every topic
	edges   = 2
	// rateGoal is in messages a second.
	rateGoal = 200_000
)

// rate publishes ephemeral messages over one stream, as fast as its window lets it, to topics with
// a subscriber each on one of the edges.
func (b *bench) rate(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, edges))
	defer m.Stop()
	alone := try.Get(b.Dir.StartNATS(ctx, b.Programs.NATS))
	defer local.Stop(alone)
	l := meshLoad("rate", m, job{Kind: "hose", Frames: frames, Span: b.Span})
	reference, err := b.do(ctx, natsLoad(alone, job{Kind: "nats", Frames: frames, Span: b.Span / 2}))
	if err != nil {
		return fmt.Errorf("nats-server alone: %w", err)
	}
	o := try.Get(b.do(ctx, l))
	b.Add(table.AtLeast("ephemeral publishes over one stream, delivered", o.rate(), "messages/s", rateGoal,
		fmt.Sprintf("%d topics with a subscriber each, %d edges, %d B, %d refused; %s; nats-server alone, unanswered: %.0f, %s", topics, edges, payload, o.Refused, o.used,
			reference.rate(), reference.used)))
	o = try.Get(b.do(ctx, meshLoad("rate-sdk", m, job{Kind: "sdk", Frames: frames, Span: b.Span})))
	b.Add(table.Figure("the same with the Go SDK's producer", o.rate(), "messages/s", fmt.Sprintf("%d failed; %s", o.Refused, o.used)))
	return nil
}

// meshLoad publishes to a router, and subscribes to each topic on one of the edges.
func meshLoad(name string, m *local.Mesh, publish job) *load {
	publish.Addr, publish.Topics, publish.Size = m.Router.Addr, names(topics), payload
	l := &load{name: name, publish: publish, copies: 1, servers: []suite.Consumer{
		suite.Of("router", m.Router), suite.Of("nats", m.NATS), suite.Of("edges", m.Edges...),
	}, profiled: append([]*local.Process{m.Router}, m.Edges...)}
	subscribe := job{Kind: "subs", Topics: publish.Topics, Rate: publish.Rate, Span: publish.Span}
	for _, e := range m.Edges {
		subscribe.Addrs = append(subscribe.Addrs, e.Addr)
	}
	l.subscribe = []job{subscribe}
	return l
}

// natsLoad is the same over nats-server alone: no router, no edge, no answers.
func natsLoad(p *local.Process, publish job) *load {
	publish.Addr, publish.Topics, publish.Size = p.Addr, names(topics), payload
	l := &load{name: "nats-alone", publish: publish, copies: 1, servers: []suite.Consumer{suite.Of("nats", p)}}
	for i := range edges {
		l.subscribe = append(l.subscribe, job{Kind: "nats-subs", Addr: p.Addr, Topics: share(publish.Topics, i, edges), Rate: publish.Rate})
	}
	return l
}

// share is every n-th from i on.
func share(all []string, i, n int) (part []string) {
	for ; i < len(all); i += n {
		part = append(part, all[i])
	}
	return part
}
