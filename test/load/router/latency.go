package router

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	latencyRate = 5_000 // messages a second
	p50Goal     = 300   // µs
	p99Goal     = 2_000 // µs
)

// latency publishes at a fixed rate, over one stream, and times each message from when it was due
// until its subscriber read it from the socket.
func (b *bench) latency(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, edges))
	defer m.Stop()
	alone := try.Get(b.Dir.StartNATS(ctx, b.Programs.NATS))
	defer local.Stop(alone)
	r, err := b.do(ctx, natsLoad(alone, job{Kind: "nats", Rate: latencyRate, Span: b.Span / 2}))
	if err != nil {
		return fmt.Errorf("nats-server alone: %w", err)
	}
	o := try.Get(b.do(ctx, meshLoad("latency", m, job{Kind: "due", Rate: latencyRate, Span: b.Span})))
	what := fmt.Sprintf("publish to socket at %d/s, ", latencyRate)
	b.Add(
		table.AtMost(what+"p50", o.at(.5), "µs", p50Goal, fmt.Sprintf("nats-server alone %.0f; %s", r.at(.5), o.used)),
		table.AtMost(what+"p99", o.at(.99), "µs", p99Goal, fmt.Sprintf("p99.9 %.0f, max %.0f; nats-server alone %.0f, p99.9 %.0f", o.at(.999), o.at(1), r.at(.99), r.at(.999))),
	)
	return nil
}
