package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// deliveriesPerSecond of the open loop.
const deliveriesPerSecond = 10_000

// open is one server in an open loop.
type open struct {
	addr      string
	dialect   swarm.Dialect
	subs      int // each of its topics has subs/topics
	topics    int
	topicOf   func(message int) string
	perSecond float64 // messages
	source    func(context.Context) (stamping, error)
}

// stamping is a source whose messages carry the time at which they were due.
type stamping interface {
	PublishTo(topics []string, at time.Time) error
	Close() error
}

// latency measures an open loop: messages leave when they are due, whatever became of those before,
// and a late one counts from when it was due. The bare loop is fed and read by the same load, so
// its figures say what that and the kernel take.
func (b *bench) latency(ctx context.Context) error {
	m, err := b.dir.StartMesh(ctx, b.programs, 1)
	if err != nil {
		return err
	}
	defer m.Stop()
	bare, err := b.dir.StartBare(ctx, b.bare, bareWrite)
	if err != nil {
		return err
	}
	defer bare.Stop()
	const topics = 100
	each := b.subs / topics
	edge := func(topics int) open {
		o := open{addr: m.Edges[0].Addr, subs: b.subs, topics: topics, perSecond: float64(deliveriesPerSecond*topics) / float64(b.subs)}
		o.topicOf = func(n int) string { return fmt.Sprintf("bench/latency-%d/%d", topics, n%topics) }
		o.dialect = &swarm.Push{Topics: func(n int) []string { return []string{o.topicOf(n)} }, HeartbeatMs: never}
		o.source = func(ctx context.Context) (stamping, error) {
			return publisher.New(ctx, m.Router.Addr, topic, b.size)
		}
		return o
	}
	alone := func(subs int) open {
		return open{
			addr: bare.Addr, subs: subs, topics: 1, topicOf: func(int) string { return topic }, perSecond: float64(deliveriesPerSecond) / float64(subs), dialect: &swarm.Bare{Size: b.size},
			source: func(ctx context.Context) (stamping, error) { return publisher.Bare(ctx, bare.Addr, b.size) },
		}
	}
	what := fmt.Sprintf("latency, %d deliveries/s to %d subscribers", deliveriesPerSecond, b.subs)
	for _, pair := range []struct {
		name       string
		edge, bare open
	}{
		{what, edge(1), alone(b.subs)},
		{fmt.Sprintf("%s, %d topics", what, topics), edge(topics), alone(each)},
	} {
		took, err := b.openLoop(ctx, &pair.bare)
		if err != nil {
			return err
		}
		reference := fmt.Sprintf("bare-write to %d subscribers: p50 %.2f, p99 %.2f", pair.bare.subs, table.Quantile(took, 0.5), table.Quantile(took, 0.99))
		if took, err = b.openLoop(ctx, &pair.edge); err != nil {
			return err
		}
		b.rows = append(b.rows,
			table.Figure(pair.name+", p50", table.Quantile(took, 0.5), "ms", fmt.Sprintf("max %.2f", table.Quantile(took, 1))),
			table.AtMost(pair.name+", p99", table.Quantile(took, 0.99), "ms", 1, fmt.Sprintf("p99.9 %.2f; %s", table.Quantile(took, 0.999), reference)),
		)
	}
	return nil
}

func (b *bench) openLoop(ctx context.Context, o *open) (took []time.Duration, err error) {
	counted := false
	s, err := swarm.Dial(ctx, swarm.Config{
		Addr: o.addr, Conns: o.subs, Dialect: o.dialect,
		Message: func(_ int, frame []byte) {
			if at, ok := publisher.Stamped(frame); ok && counted {
				took = append(took, time.Since(at))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// A second is thrown away: connections and paths warm up.
	if err := o.publish(ctx, s, time.Second); err != nil {
		return nil, err
	}
	counted = true
	err = o.publish(ctx, s, b.open)
	return took, err
}

// publish publishes to one topic after the other at a rate, while the swarm receives, until all has
// come.
func (o *open) publish(ctx context.Context, s *swarm.Swarm, span time.Duration) error {
	src, err := o.source(ctx)
	if err != nil {
		return err
	}
	total := max(1, int(o.perSecond*span.Seconds())/o.topics) * o.topics
	s.Restart()
	s.Await(total / o.topics)
	sent := make(chan error, 1)
	go func() { sent <- publishDue(ctx, src, o.topicOf, o.perSecond, total) }()
	err = s.Until(20 * time.Second)
	return errors.Join(err, <-sent, src.Close())
}

func publishDue(ctx context.Context, src stamping, topicOf func(int) string, perSecond float64, total int) error {
	// Go's own timers may be a millisecond late where nothing else goes on: that would be measured
	// as the server's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	due := func(n int) time.Time { return began.Add(time.Duration(float64(n) / perSecond * float64(time.Second))) }
	for n := range total {
		for wait := time.Until(due(n)); wait > 0; wait = time.Until(due(n)) {
			rest := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&rest, nil) // a signal may cut it short
		}
		if err := errors.Join(src.PublishTo([]string{topicOf(n)}, due(n)), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}
