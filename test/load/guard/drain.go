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
	all, readers := try.Get2(movers(ctx, m.Edges[0].Addr, b.conns, func(n int) string { return topics[n%drainTopics] }))
	stop := publishing(ctx, m.Router.Addr, topics)
	// Goroutines of clients end with ctx; what they say of themselves is read after that.
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, c := range all {
		wg.Go(func() { errs[i] = c.live(ctx, readers[i]) })
	}
	calm := try.Get(p99(ctx, flows, 8*time.Second))
	began := time.Now()
	try.Do(m.Edges[0].Signal(syscall.SIGTERM))
	moving := try.Get(p99(ctx, flows, 22*time.Second))
	took := try.Get(allMoved(all, m.Edges[0], began))
	published := try.Get(stop())
	missing := missed(all, published)
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
	errs := make([]error, len(flows))
	var wg sync.WaitGroup
	for i, f := range flows {
		wg.Go(func() { _, _, errs[i] = tail(ctx, f, span) })
	}
	wg.Wait()
	var took []time.Duration
	for _, f := range flows {
		took = append(took, f.Took...)
	}
	return table.Quantile(took, 0.99), errors.Join(errs...)
}

// publishing publishes 30 messages a second in turns to topics, until it is stopped; then it says
// how many each has.
func publishing(ctx context.Context, router string, topics []string) (stop func() (each map[string]uint64, err error)) {
	ended := make(chan struct{})
	type result struct {
		each map[string]uint64
		err  error
	}
	said := make(chan result, 1)
	go func() {
		each := map[string]uint64{}
		p, err := publisher.New(ctx, router, topics[0], 128)
		if err != nil {
			said <- result{err: err}
			return
		}
		tick := time.NewTicker(time.Second / 30)
		defer tick.Stop()
		for n := 0; err == nil; n++ {
			select {
			case <-ended:
				said <- result{each, errors.Join(p.Wait(ctx), p.Close())}
				return
			case <-ctx.Done():
				err = ctx.Err()
				continue
			case at := <-tick.C:
				topic := topics[n%len(topics)]
				err = p.PublishTo([]string{topic}, at)
				each[topic]++
			}
		}
		said <- result{err: errors.Join(err, p.Close())}
	}()
	return func() (map[string]uint64, error) {
		close(ended)
		r := <-said
		return r.each, r.err
	}
}

// allMoved waits for the edge's end and for all clients to be subscribed elsewhere.
func allMoved(all []*mover, edge *local.Process, began time.Time) (time.Duration, error) {
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		here := 0
		for _, c := range all {
			if c.moved.Load() {
				here++
			}
		}
		if here == len(all) {
			break
		}
		select {
		case <-tick.C:
		case <-late.C:
			return 0, fmt.Errorf("%d of %d clients are elsewhere", here, len(all))
		}
	}
	took := time.Since(began)
	select {
	case <-edge.Done():
		return took, nil
	case <-late.C:
		return took, errors.New("the edge does not end")
	}
}

// missed waits for the last messages and counts clients that have not got theirs.
func missed(all []*mover, published map[string]uint64) (n int) {
	until := time.Now().Add(10 * time.Second)
	for {
		n = 0
		for _, c := range all {
			if c.last.Load() != published[c.topic] {
				n++
			}
		}
		if n == 0 || time.Now().After(until) {
			return n
		}
		time.Sleep(50 * time.Millisecond)
	}
}
