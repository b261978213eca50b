package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// soon is how fast a Ping is to be answered whatever else the loop does, in ms.
const soon = 5

// manyFilters is how many subscriptions end at once.
const manyFilters = 10_000

// stalls measures what one loop's other work means for a connection that only pings: a broadcast to
// very many, very many subscriptions that end at once, and clients with very many topics.
func (b *bench) stalls(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1, "--loops", "1", "--max-subscriptions", fmt.Sprint(manyFilters)))
	defer m.Stop()
	t := try.Get(b.edgeTarget(ctx, m, "edge", topic, b.conns))
	defer func() { err = errors.Join(err, t.close()) }()
	try.Get(t.Pump(ctx, 1, time.Second)) // warms up
	what := fmt.Sprintf("broadcasts to %d on one loop", b.conns)
	p := try.Get(probe(m.Edges[0].Addr, func() error {
		_, err := t.Pump(ctx, 1, 3*b.Span)
		return err
	}))
	b.pingRows(what, p, "")
	var all pings
	spans := []float64{}
	for range b.Rounds {
		p, took := try.Get2(unsubscribeAll(m.Edges[0].Addr))
		all.took, all.late = append(all.took, p.took...), max(all.late, p.late)
		spans = append(spans, float64(took)/float64(time.Millisecond))
	}
	lag := try.Get(worstLag(ctx, m.Edges[0]))
	b.pingRows(fmt.Sprintf("%d filters end at once", manyFilters), all, fmt.Sprintf(", they took %.3g ms, worst lag of the loop's last samples %.3g ms", table.Median(spans), lag))
	return b.wideStalls(ctx, m)
}

func (b *bench) pingRows(what string, p pings, also string) {
	refs := fmt.Sprintf("p50 %.3g, %d pings, the machine alone was up to %.3g ms late%s", table.Quantile(p.took, 0.5), len(p.took), float64(p.late)/float64(time.Millisecond), also)
	b.Add(
		table.AtMost("Ping answered while "+what+", p99", table.Quantile(p.took, 0.99), "ms", soon, refs),
		table.AtMost("Ping answered while "+what+", max", table.Quantile(p.took, 1), "ms", soon, ""),
	)
}

// unsubscribeAll subscribes to very many filters, half of them with wildcards, and ends all in one
// go while another connection pings.
func unsubscribeAll(addr string) (p pings, took time.Duration, err error) {
	defer try.Catch(&err)
	c := try.Get(dialClient(addr))
	defer func() { err = errors.Join(err, c.close()) }()
	var end []byte
	for i := range manyFilters {
		filter := fmt.Sprintf("bench/many/%d", i)
		if i%2 == 0 {
			filter = fmt.Sprintf("bench/many/+/%d", i)
		}
		try.Do(c.send(frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: filter})))
		if i%100 == 99 { // its answers are read as they come, as a client's library would
			try.Do(c.until(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, 100))
		}
		end = append(end, frame(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: uint32(i + 1)})...)
	}
	p, err = probe(addr, func() error {
		time.Sleep(30 * time.Millisecond) // some pings are of before
		began := time.Now()
		err := errors.Join(c.send(end), c.until(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, manyFilters))
		took = time.Since(began)
		return err
	})
	return p, took, err
}

// worstLag of the loops' last 100 samples, in ms.
func worstLag(ctx context.Context, p *local.Process) (_ float64, err error) {
	defer try.Catch(&err)
	all := try.Get(p.Metrics(ctx))
	v, ok := all[`pushmesh_edge_loop_lag_seconds{of="last_100",quantile="1"}`]
	if !ok {
		return 0, fmt.Errorf("%s does not tell its lag", p.Name)
	}
	return v * 1000, nil
}
