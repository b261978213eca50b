package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// deliveriesPerSecond of the open loop.
const deliveriesPerSecond = 10_000

// latency measures an open loop at an edge and at the bare loop, which is fed and read by the same
// load: its figures say what that and the kernel take.
func (b *bench) latency(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	defer m.Stop()
	bare := try.Get(b.Dir.StartBare(ctx, b.Tools, bareWrite))
	defer local.Stop(bare)
	what := fmt.Sprintf("latency, %d deliveries/s to %d subscribers", deliveriesPerSecond, b.subs)
	for _, topics := range []int{1, 100} {
		name, each := what, b.subs/topics
		if topics > 1 {
			name = fmt.Sprintf("%s, %d topics", what, topics)
		}
		alone := &flow.Flow{Topics: []string{topic}, PerSecond: float64(deliveriesPerSecond) / float64(each), Source: func(ctx context.Context) (flow.Source, error) {
			return publisher.Bare(ctx, bare.Addr, b.size)
		}}
		try.Do(b.openLoop(ctx, alone, swarm.Config{Addr: bare.Addr, Conns: each, Dialect: &swarm.Bare{Size: b.size}}))
		edge := &flow.Flow{PerSecond: float64(deliveriesPerSecond) / float64(each), Source: func(ctx context.Context) (flow.Source, error) {
			return publisher.New(ctx, m.Router.Addr, topic, b.size)
		}}
		for n := range topics {
			edge.Topics = append(edge.Topics, fmt.Sprintf("bench/latency-%d/%d", topics, n))
		}
		own := func(n int) []string { return edge.Topics[n%topics : n%topics+1] }
		try.Do(b.openLoop(ctx, edge, swarm.Config{Addr: m.Edges[0].Addr, Conns: b.subs, Dialect: &swarm.Push{Topics: own, HeartbeatMs: swarm.Never}}))
		reference := fmt.Sprintf("bare-write to %d subscribers: p50 %.2f, p99 %.2f", each, table.Quantile(alone.Took, 0.5), table.Quantile(alone.Took, 0.99))
		b.Add(
			table.Figure(name+", p50", table.Quantile(edge.Took, 0.5), "ms", fmt.Sprintf("max %.2f", table.Quantile(edge.Took, 1))),
			table.AtMost(name+", p99", table.Quantile(edge.Took, 0.99), "ms", 1, fmt.Sprintf("p99.9 %.2f; %s", table.Quantile(edge.Took, 0.999), reference)),
		)
	}
	return nil
}

// openLoop runs a flow, after a second in which connections and paths warm up.
func (b *bench) openLoop(ctx context.Context, f *flow.Flow, cfg swarm.Config) error {
	if err := f.Dial(ctx, cfg); err != nil {
		return err
	}
	_, err := f.Run(ctx, time.Second, b.open)
	return errors.Join(err, f.Swarm.Close())
}
