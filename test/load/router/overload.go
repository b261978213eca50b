package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/disk"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	shedLag     = "10ms"
	floodSize   = 256 // bytes
	floodTopics = 64  // of each producer
	floodKinds  = 4   // producers
	// liveWait and roomWait are MaxWait of the producers: some six times what half of the messages
	// wait where there is little to do.
	liveWait = 14 * time.Millisecond
	roomWait = 26 * time.Millisecond
	// A rate is sustained while so much of it is accepted, half of it within so long. A disk's
	// moments make the p99 of two seconds a game of chance.
	sustained   = 0.98
	bearable    = 20 // ms
	slowest     = 2_000
	fastest     = 2_000_000
	overloadBy  = 3
	goodputGoal = 0.9
	waitGoal    = 3 // times the unloaded p99
	greedyRate  = 30_000
	modestRate  = 400
	modest      = 5 // producers
)

// Overload finds the rate that a router with everything behind it sustains, and offers three times
// as much. The load is an open loop in a process of its own. With ephemeral messages the router has
// a CPU of its own, and everybody else the others: it is the bottleneck. Durable ones share all
// CPUs, and end at Postgres.

// durableFlood is that of messages that a real Postgres stores.
func (b *bench) durableFlood(ctx context.Context) error {
	return b.onPostgres(ctx, func(db string) error {
		return b.onMesh(ctx, db, nil, []string{"--append-wait", "50ms", "--shed-lag", shedLag}, func(m *local.Mesh) error {
			return b.flood(&stage{b: b, m: m, name: "durable", topic: "room/flood", wait: roomWait})
		})
	})
}

// greedyOne is a greedy producer beside modest ones.
func (b *bench) greedyOne(ctx context.Context) error {
	return b.onPostgres(ctx, func(db string) error {
		return b.onMesh(ctx, db, nil, []string{"--append-wait", "50ms", "--producer-rate", "1000", "--producer-in-flight", "200"}, b.greedy)
	})
}

// onPostgres runs with a database whose commits are on the disk.
func (b *bench) onPostgres(ctx context.Context, run func(db string) error) (err error) {
	defer try.Catch(&err)
	pg := try.Get(disk.Start(ctx))
	db, err := pg.Fresh()
	if err == nil {
		err = run(db)
	}
	return errors.Join(err, pg.Close())
}

// ephemeralFlood is that of messages with a subscriber each.
func (b *bench) ephemeralFlood(ctx context.Context) error {
	router, others, ok := local.Split()
	if !ok {
		fmt.Println("# ephemeral: there is one CPU, which the router shares with everybody")
	}
	return others.Do(func() error {
		return b.onMesh(ctx, "", router, []string{"--shed-lag", shedLag}, func(m *local.Mesh) (err error) {
			s := &stage{b: b, m: m, name: "ephemeral", topic: "live/flood", wait: liveWait, router: router}
			var all []string
			for i := range floodKinds {
				all = append(all, openTopics(s.topics(), i)...)
			}
			subs, err := b.Hire("flood-subscribers", "subs", job{Addr: m.Edges[0].Addr, Topics: all}, nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, subs.Dismiss()) }()
			return b.flood(s)
		})
	})
}

func (b *bench) onMesh(ctx context.Context, db string, router local.CPUs, args []string, run func(m *local.Mesh) error) (err error) {
	defer try.Catch(&err)
	prog := b.Programs
	prog.DB, prog.RouterArgs, prog.RouterOn = db, args, router
	m := try.Get(b.Dir.StartMesh(ctx, prog, 1))
	defer m.Stop()
	return run(m)
}

// stage is a mesh that gets one kind of messages.
type stage struct {
	b     *bench
	m     *local.Mesh
	name  string
	topic string
	// wait is MaxWait of those producers that have one.
	wait time.Duration
	// router is where the router runs; nil: like everybody else.
	router local.CPUs
	// addr instead of the router's, and the process there.
	addr    string
	process *local.Process
}

func (s *stage) topics() (all []string) {
	for i := range floodTopics {
		all = append(all, fmt.Sprintf("%s-%d", s.topic, i))
	}
	return all
}

// outcome of an offer.
type offered struct {
	loop
	span      time.Duration
	router    float64 // CPUs that the router used
	generator float64 // CPUs that the load itself used
}

func (o *offered) rate() float64 { return float64(o.OK) / o.span.Seconds() }

// offer lets sources send for a span, after half a second that does not count.
func (s *stage) offer(span time.Duration, sources []source) (o offered, err error) {
	defer try.Catch(&err)
	addr, server := s.addr, s.process
	if server == nil {
		addr, server = s.m.Router.Addr, s.m.Router
	}
	w := try.Get(s.b.Hire("open-loop", "open-loop", job{Addr: addr, Topics: s.topics(), Size: floodSize, Span: span, Sources: sources}, nil))
	defer func() { err = errors.Join(err, w.Dismiss()) }()
	o.span = span
	usage := try.Get(suite.Using(suite.Of("router", server), suite.Of("load", w.Process)))
	try.Do(w.Ask("go", &o.loop))
	spent := try.Get(usage.Spent())
	whole := (span + openFirst).Seconds()
	o.router, o.generator = spent[0].Seconds()/whole, spent[1].Seconds()/whole
	if o.Other > 0 {
		fmt.Printf("# %s: %d messages were neither taken nor refused: %s\n", s.topic, o.Other, o.Fault)
	}
	if o.Unanswered > 0 {
		err = fmt.Errorf("%s: %d messages were never answered", s.name, o.Unanswered)
	}
	return o, err
}

// mixed are producers that together send so many messages a second, of all priorities alike. wait
// is their MaxWait; 0: they ignore what they are told.
func mixed(rate float64, wait time.Duration) (all []source) {
	for i := range floodKinds {
		all = append(all, source{Name: fmt.Sprint("producer-", i), Rate: rate / floodKinds, Priorities: 10, MaxWait: wait})
	}
	return all
}

// greedy puts a producer that sends thirty times what it may, and ignores that it is refused,
// beside modest ones.
func (b *bench) greedy(m *local.Mesh) (err error) {
	defer try.Catch(&err)
	const span = 4 * time.Second
	var sources []source
	for i := range modest {
		sources = append(sources, source{Name: fmt.Sprint("modest-", i), Rate: modestRate})
	}
	s := &stage{b: b, m: m, name: "greedy", topic: "room/greedy"}
	alone := try.Get(s.offer(span, sources))
	beside := try.Get(s.offer(span, append(sources, source{Name: "greedy", Rate: greedyRate, Greedy: true})))
	said := fmt.Sprintf("greedy: %d/s wanted, limit 1,000/s, %.0f/s taken, %.0f/s read and refused, %.0f/s left in its own hands; router's CPU %.0f ms/s with it and %.0f without",
		greedyRate, float64(beside.GreedyOK)/span.Seconds(), float64(beside.GreedySent-beside.GreedyOK)/span.Seconds(), float64(beside.GreedyUnsent)/span.Seconds(),
		beside.router*1000, alone.router*1000)
	b.Add(
		table.AtMost("modest producers beside a greedy one: p99", beside.P99/alone.P99, "× alone", waitGoal,
			fmt.Sprintf("p50 %.1f ms, p99 %.1f ms; alone %.1f and %.1f ms; %s", beside.P50, beside.P99, alone.P50, alone.P99, said)),
		table.AtMost("modest producers beside a greedy one: refused", float64(beside.Refused), "messages", 0, fmt.Sprintf("of %d", beside.OK+beside.Refused)),
	)
	return nil
}
