package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	drainTopics = 100
	// drainGuests are subscribers of each edge that takes clients in, whose latency is looked at.
	drainGuests = 50
	drainWithin = 30 * time.Second
)

// drain stops one of three edges and watches its clients go to the other two.
func (b *bench) drain(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 3, "--drain", "26s", "--grace", "40s", "--drain-pace", "750"))
	defer m.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var flows []*flow.Flow
	for i, e := range m.Edges[1:] {
		f := try.Get(flow.Broadcast(ctx, m.Router.Addr, e.Addr, fmt.Sprint("room/guests/", i), drainGuests, 50))
		defer func() { _ = f.Swarm.Close() }()
		flows = append(flows, f)
	}
	topics := make([]string, drainTopics)
	for i := range topics {
		topics[i] = fmt.Sprint("room/moves/", i)
	}
	all := try.Get(movers(ctx, m.Edges[0].Addr, 0, b.conns, func(n int) string { return topics[n%drainTopics] }))
	stop := publishing(ctx, m.Router.Addr, topics)
	// Goroutines of clients end with ctx; what they say of themselves is read after that.
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, c := range all {
		wg.Go(func() { errs[i] = c.live(ctx) })
	}
	calm := try.Get(p99(ctx, flows, 8*time.Second))
	began := time.Now()
	m.Edges[0].Signal(syscall.SIGTERM)
	moving := try.Get(p99(ctx, flows, 22*time.Second))
	took := try.Get(allMoved(ctx, all, m.Edges[0], began))
	published := try.Get(stop())
	missing := missed(ctx, all, published)
	cancel()
	wg.Wait()
	b.drainRows(all, took, missing, calm, moving)
	return cmp.Or(errs...)
}

func (b *bench) drainRows(all []*mover, took time.Duration, missing int, calm, moving float64) {
	again, holes := 0, 0
	var gaps []time.Duration
	for _, c := range all {
		if c.again > 0 {
			again++
		}
		holes += c.holes
		gaps = append(gaps, c.gap)
	}
	name := fmt.Sprintf("drain, %d clients: ", len(all))
	b.Add(
		table.AtMost(name+"until all are elsewhere", took.Seconds(), "s", drainWithin.Seconds(), ""),
		table.AtMost(name+"with a message missing or out of order", float64(missing+holes), "", 0, ""),
		table.AtMost(name+"that needed a second try", 100*float64(again)/float64(len(all)), "%", 5, ""),
		table.AtMost(name+"p99 at the edges that take them in", moving, "ms", 2*calm, fmt.Sprintf("%.3g ms in calm", calm)),
		table.Figure(name+"without messages, median", table.Quantile(gaps, 0.5), "ms", fmt.Sprintf("p99 %.0f ms", table.Quantile(gaps, 0.99))),
	)
}

// p99 is that of all flows together, in ms.
func p99(ctx context.Context, flows []*flow.Flow, span time.Duration) (float64, error) {
	err := suite.Each(len(flows), len(flows), func(_, i int) error {
		_, _, err := tail(ctx, flows[i], span)
		return err
	})
	var took []time.Duration
	for _, f := range flows {
		took = append(took, f.Took...)
	}
	return table.Quantile(took, 0.99), err
}

// publishing publishes 30 messages a second in turns to topics, until it is stopped; then it says
// how many each has.
func publishing(ctx context.Context, router string, topics []string) (stop func() (each map[string]uint64, err error)) {
	ended, failed, each := make(chan struct{}), make(chan error, 1), map[string]uint64{}
	go func() { failed <- publishUntil(ctx, ended, router, topics, each) }()
	return func() (map[string]uint64, error) {
		close(ended)
		err := <-failed
		return each, err
	}
}

func publishUntil(ctx context.Context, ended <-chan struct{}, router string, topics []string, each map[string]uint64) (err error) {
	defer try.Catch(&err)
	p := try.Get(publisher.New(ctx, router, topics[0], 128))
	defer func() { err = errors.Join(err, p.Close()) }()
	tick := time.NewTicker(time.Second / 30)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ended:
			return p.Wait(ctx)
		case <-ctx.Done():
			return ctx.Err()
		case at := <-tick.C:
			topic := topics[n%len(topics)]
			try.Do(p.PublishTo([]string{topic}, at))
			each[topic]++
		}
	}
}

// count is of how many clients something is so.
func count(all []*mover, is func(*mover) bool) (n int) {
	for _, c := range all {
		if is(c) {
			n++
		}
	}
	return n
}

// allMoved waits for all clients to be subscribed elsewhere and for the edge's end.
func allMoved(ctx context.Context, all []*mover, edge *local.Process, began time.Time) (took time.Duration, err error) {
	err = suite.Poll(ctx, time.Minute, func() error {
		if here := count(all, func(c *mover) bool { return c.moved.Load() }); here < len(all) {
			return fmt.Errorf("%d of %d clients are elsewhere", here, len(all))
		}
		took = cmp.Or(took, time.Since(began))
		if edge.Running() {
			return errors.New("the edge does not end")
		}
		return nil
	})
	return took, err
}

// missed waits for the last messages and counts clients that have not got theirs.
func missed(ctx context.Context, all []*mover, published map[string]uint64) (n int) {
	_ = suite.Poll(ctx, 10*time.Second, func() error {
		if n = count(all, func(c *mover) bool { return c.last.Load() != published[c.topic] }); n > 0 {
			return errors.New("messages are missing")
		}
		return nil
	})
	return n
}
