package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// stallEvery: one in so many subscribers takes nothing.
	stallEvery = 100
	// A stalled one is owed stallMessages of stallSize before the others are measured beside it:
	// more than the kernel holds for it.
	stallMessages = 160
	stallSize     = 64 << 10
	// stallMemory is the edge's budget for all queues.
	stallMemory = 256 << 20
	stallTopic  = "room/guard/stall"
	// stallRate of broadcasts in a second.
	stallRate = 5
)

// stall measures what subscribers that take nothing cost the others, in turns with nobody stalled,
// and lets them catch up then.
func (b *bench) stall(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1, "--queue-memory", fmt.Sprint(stallMemory)))
	defer m.Stop()
	stalled := b.conns / stallEvery
	live := try.Get(flow.Broadcast(ctx, m.Router.Addr, m.Edges[0].Addr, "room/guard/all", b.conns-stalled, stallRate))
	defer func() { err = errors.Join(err, live.Swarm.Close()) }()
	try.Get2(tail(ctx, live, time.Second)) // warms up
	var alone, beside, held, kernel, rss []float64
	for range b.Rounds {
		p99, _ := try.Get2(tail(ctx, live, b.Span))
		alone = append(alone, p99)
		p99 = try.Get(b.besideStalled(ctx, m, live, stalled, &held, &kernel, &rss))
		beside = append(beside, p99)
	}
	said := fmt.Sprintf("p99 ms alone %.3g, beside %.3g; %d rounds of %d messages/s", alone, beside, b.Rounds, stallRate)
	b.Add(
		table.AtMost(fmt.Sprintf("%d of %d subscribers stalled: p99 of the others", stalled, b.conns), table.Median(beside)/table.Median(alone), "× alone", 1.05, said),
		table.AtMost("memory of queues and kernel for stalled ones", table.Median(held)/(1<<20), "MiB", stallMemory>>20,
			fmt.Sprintf("the kernel's part %.1f MiB for each, edge's RSS %.0f MiB", table.Median(kernel)/(1<<20)/float64(stalled), table.Median(rss)/(1<<20))),
		table.Figure("stalled ones that had everything from the log afterwards", float64(stalled*b.Rounds), "", fmt.Sprintf("each %d messages of %d KiB, and the others'", stallMessages, stallSize>>10)),
	)
	return nil
}

// besideStalled measures the flow beside connections that take nothing, then lets them read all
// they missed.
func (b *bench) besideStalled(ctx context.Context, m *local.Mesh, live *flow.Flow, n int, held, kernel, rss *[]float64) (p99 float64, err error) {
	defer try.Catch(&err)
	s := try.Get(swarm.Dial(ctx, swarm.Config{
		Addr: m.Edges[0].Addr, Conns: n, First: b.conns,
		Dialect: swarm.Subscribe(live.Topics[0], stallTopic),
	}))
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Restart()
	try.Do(fill(ctx, m.Router.Addr, stallTopic, stallMessages, stallSize, 8))
	p99, sent := try.Get2(tail(ctx, live, b.Span))
	all := try.Get(m.Edges[0].Metrics(ctx))
	memory := try.Get(procfs.RSS(m.PIDs()...))
	if stuck := all["pushmesh_edge_stuck_connections"]; int(stuck) < n {
		return 0, fmt.Errorf("only %.0f of %d are stuck", stuck, n)
	}
	*held = append(*held, all["pushmesh_edge_queue_memory_used_bytes"])
	*kernel = append(*kernel, all["pushmesh_edge_kernel_bytes"])
	*rss = append(*rss, float64(memory))
	s.Await(stallMessages + sent)
	return p99, s.Until(20 * time.Second)
}
