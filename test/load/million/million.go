// Package million holds a million connections on one machine and sends to all of them.
//
// A process may open only so many files, so there is an edge for every 19,000 connections and a
// worker that opens them.
package million

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	million = 1_000_000
	// fullNeeds is the free memory that a million takes with room to spare.
	fullNeeds = 18 << 30
	// spareFiles is what an edge opens besides connections.
	spareFiles = 1000
	unicasts   = 1000
	heartbeat  = 60 * time.Second
)

// race is one run: workers, and what was found.
type race struct {
	*suite.Run
	conns   int
	hold    time.Duration
	mesh    *local.Mesh
	workers []*suite.Worker
}

// Workers are those of this suite.
var Workers = map[string]suite.Work{"connections": func(ctx context.Context, arg []byte, orders <-chan string, say func(any) error) error {
	runtime.GOMAXPROCS(1) // it has one thing to do
	return work(ctx, arg, orders, say)
}}

// New is the suite.
func New(run *suite.Run) *suite.Suite {
	r := &race{Run: run}
	return &suite.Suite{
		Timeout: 9 * time.Minute,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&r.conns, "conns", million, "connections, if there is memory for them")
			f.DurationVar(&r.hold, "hold", 15*time.Second, "how long all connections idle before the broadcast")
		},
		Check: func() error {
			free, err := procfs.Available()
			if err == nil && free < fullNeeds {
				// What a connection takes there and here, all processes included, is well below 14
				// KiB.
				r.conns = min(r.conns, int(free/(14<<10)))
			}
			if r.conns < 1 {
				err = errors.Join(err, errors.New("no memory for a single connection, or -conns below 1"))
			}
			return err
		},
		Parts: func() []suite.Part { return []suite.Part{{Name: fmt.Sprintf("%d connections", r.conns), Run: r.run}} },
	}
}

// perEdge is how many connections an edge and a worker can hold.
func perEdge() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	n := int(min(limit.Cur, 64_000)) - spareFiles
	if n < 1 {
		return 0, fmt.Errorf("only %d files may be open", limit.Cur)
	}
	return n, nil
}

func (r *race) run(ctx context.Context) (err error) {
	defer try.Catch(&err)
	most := try.Get(perEdge())
	edges := (r.conns + most - 1) / most
	fmt.Printf("%d connections over %d edges\n", r.conns, edges)
	// One loop and one thread that runs Go each: there are far more edges than cores.
	r.Programs.EdgeEnv = []string{"GOMAXPROCS=1"}
	r.mesh = try.Get(r.Dir.StartMesh(ctx, r.Programs, edges, "--loops", "1", "--shed-lag", "0"))
	defer r.mesh.Stop()
	defer r.stop()
	return r.measured(ctx)
}

func (r *race) stop() {
	_ = suite.Each(len(r.workers), len(r.workers), func(_, i int) error { return r.workers[i].Dismiss() })
}

func (r *race) measured(ctx context.Context) (err error) {
	defer try.Catch(&err)
	before := try.Get(r.measure())
	try.Do(r.hireAll())
	began := time.Now()
	cost := try.Get(r.costOf(func() error { return r.connect(ctx) }))
	took := time.Since(began)
	fmt.Printf("connected after %.0f s; %s\n", took.Seconds(), cost)
	select {
	case <-time.After(r.hold):
	case <-ctx.Done():
		return ctx.Err()
	}
	idle := try.Get(r.measure())
	r.connections(took, cost, before, idle)
	try.Do(r.broadcast(ctx))
	try.Do(r.unicast(ctx))
	return r.alive()
}

// hireAll starts a worker for every edge.
func (r *race) hireAll() (err error) {
	defer try.Catch(&err)
	n := len(r.mesh.Edges)
	for i, edge := range r.mesh.Edges {
		first, end := r.conns*i/n, r.conns*(i+1)/n
		j := job{Addr: edge.Addr, First: first, Conns: end - first, Every: max(1, r.conns/unicasts)}
		for k := range j.From {
			j.From[k] = [4]byte{127, 0, byte(1 + i), byte(1 + k)}
		}
		w := try.Get(r.Hire(fmt.Sprintf("worker-%d", i+1), "connections", j, nil))
		r.workers = append(r.workers, w)
	}
	return nil
}

// connectAtOnce is how many workers connect at a time: a few keep the machine busy.
const connectAtOnce = 4

func (r *race) connect(ctx context.Context) error {
	return suite.Each(len(r.workers), connectAtOnce, func(_, i int) error { return errors.Join(ctx.Err(), r.workers[i].Ask("connect", nil)) })
}

// costOf says what CPU each connection took of whom while something went on, in µs.
func (r *race) costOf(do func() error) (string, error) {
	clients := suite.Consumer{Name: "clients"}
	for _, w := range r.workers {
		clients.PIDs = append(clients.PIDs, w.PID())
	}
	usage, err := suite.Using(suite.Of("edges", r.mesh.Edges...), clients, suite.Of("store", r.mesh.Store), suite.Of("router", r.mesh.Router), suite.Of("NATS", r.mesh.NATS))
	if err == nil {
		err = do()
	}
	if err != nil {
		return "", err
	}
	return usage.Each(int64(r.conns))
}

// footprint is what everything takes.
type footprint struct{ edges, kernel, free int64 }

func (r *race) measure() (_ footprint, err error) {
	defer try.Catch(&err)
	edges := try.Get(procfs.RSS(r.mesh.PIDs()...))
	kernel := try.Get(procfs.Kernel())
	free, err := procfs.Available()
	return footprint{edges, kernel, free}, err
}

func (r *race) connections(took time.Duration, cost string, before, idle footprint) {
	n := float64(r.conns)
	rss := fmt.Sprintf("%d edges, %.1f MB each before", len(r.mesh.Edges), float64(before.edges)/1e6/float64(len(r.mesh.Edges)))
	r.Add(
		table.AtLeast("connections held, subscribed and heartbeating", n, "1", million, ""),
		table.Figure("time to connect them", took.Seconds(), "s", fmt.Sprintf("%.0f/s; %s", n/took.Seconds(), cost)),
		table.AtMost("RSS of the edges per connection", float64(idle.edges-before.edges)/n, "B", 1024, rss),
		table.Figure("the same, processes themselves included", float64(idle.edges)/n, "B", ""),
		table.Figure("kernel memory per connection, both ends", float64(idle.kernel-before.kernel)/n, "B", "caches that it could give back included"),
		table.Figure("available memory of the machine per connection, clients and all", float64(before.free-idle.free)/n, "B", ""),
	)
}

// size of payloads.
const size = 128

// broadcast publishes one message to all.
func (r *race) broadcast(ctx context.Context) (err error) {
	defer try.Catch(&err)
	got, first := try.Get2(r.publish(ctx, []string{everyone}, r.conns))
	took := got.Last.Sub(first)
	r.Add(
		table.AtMost("broadcast: until the last subscriber has it", took.Seconds(), "s", 10, fmt.Sprintf("%.0f deliveries/s", float64(got.Deliveries)/took.Seconds())),
		table.AtMost("broadcast: missing", float64(r.conns-got.Connections), "1", 0, ""),
		table.Figure("broadcast: p50", table.At(got.Took, 0.5), "ms", ""),
	)
	return nil
}

// unicast publishes one message each to some connections all over the edges.
func (r *race) unicast(ctx context.Context) (err error) {
	defer try.Catch(&err)
	var topics []string
	every := max(1, r.conns/unicasts)
	for n := 0; n < r.conns && len(topics) < unicasts; n += every {
		topics = append(topics, fmt.Sprintf(ownTopic, n))
	}
	got, _ := try.Get2(r.publish(ctx, topics, len(topics)))
	r.Add(
		table.AtMost(fmt.Sprintf("%d unicasts: missing", len(topics)), float64(len(topics)-got.Connections), "1", 0, ""),
		table.Figure(fmt.Sprintf("%d unicasts: p50", len(topics)), table.At(got.Took, 0.5), "ms", ""),
		table.Figure(fmt.Sprintf("%d unicasts: p99", len(topics)), table.At(got.Took, 0.99), "ms", ""),
	)
	return nil
}

// publish sends a message to each topic, all at once, and collects until so many deliveries have
// come, or none does any more.
func (r *race) publish(ctx context.Context, topics []string, want int) (tally, time.Time, error) {
	const patience = 20 * time.Second
	var all tally
	if err := r.tell("clear"); err != nil {
		return all, time.Time{}, err
	}
	p, err := publisher.New(ctx, r.mesh.Router.Addr, topics[0], size)
	if err != nil {
		return all, time.Time{}, err
	}
	began := time.Now()
	err = p.PublishTo(topics, began)
	if err == nil {
		err = p.Wait(ctx)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return all, began, err
	}
	for progress := began; all.Deliveries < want && time.Since(progress) < patience; {
		select {
		case <-time.After(500 * time.Millisecond): // asking costs the machine some: not more often
		case <-ctx.Done():
			return all, began, ctx.Err()
		}
		now, err := r.collect()
		if err != nil {
			return all, began, err
		}
		if now.Deliveries > all.Deliveries {
			progress = time.Now()
		}
		all = now
	}
	return all, began, r.tell("rest")
}

// tell has every worker obey an order.
func (r *race) tell(order string) error {
	for _, w := range r.workers {
		if err := w.Ask(order, nil); err != nil {
			return err
		}
	}
	return nil
}

func (r *race) collect() (all tally, err error) {
	for _, w := range r.workers {
		var one tally
		if err := w.Ask("report", &one); err != nil {
			return all, err
		}
		all.Deliveries += one.Deliveries
		all.Connections += one.Connections
		all.Pongs += one.Pongs
		all.Took = append(all.Took, one.Took...)
		if one.Last.After(all.Last) {
			all.Last = one.Last
		}
	}
	return all, nil
}

// alive says how many pings were answered: every connection is still there, or a worker would have
// failed.
func (r *race) alive() error {
	all, err := r.collect()
	if err == nil {
		r.Add(table.Figure("pings answered", float64(all.Pongs), "1", ""))
	}
	return err
}
