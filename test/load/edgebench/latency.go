package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// deliveriesPerSecond of the open loop.
const deliveriesPerSecond = 10_000

// latency measures an open loop: messages leave when they are due, whatever became of those before, and a late one counts from when
// it was due.
func (b *bench) latency(ctx context.Context) error {
	m, err := b.dir.StartMesh(ctx, b.programs, 1)
	if err != nil {
		return err
	}
	defer m.Stop()
	all, err := b.openLoop(ctx, m, 1)
	if err != nil {
		return err
	}
	few, err := b.openLoop(ctx, m, 100)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("latency, %d deliveries/s to %d subscribers", deliveriesPerSecond, b.subs)
	b.rows = append(b.rows,
		table.Figure(what+", p50", percentile(all, 0.5), "ms", fmt.Sprintf("max %.2f", percentile(all, 1))),
		table.AtMost(what+", p99", percentile(all, 0.99), "ms", 1, fmt.Sprintf("p99.9 %.2f", percentile(all, 0.999))),
		table.Figure(what+", 100 topics, p50", percentile(few, 0.5), "ms", fmt.Sprintf("max %.2f", percentile(few, 1))),
		table.Figure(what+", 100 topics, p99", percentile(few, 0.99), "ms", fmt.Sprintf("p99.9 %.2f", percentile(few, 0.999))),
	)
	return nil
}

func (b *bench) openLoop(ctx context.Context, m *local.Mesh, topics int) (took []time.Duration, err error) {
	topicOf := func(n int) string { return fmt.Sprintf("bench/latency-%d/%d", topics, n%topics) }
	counted := false
	s, err := swarm.Dial(ctx, swarm.Config{
		Addr: m.Edges[0].Addr, Conns: b.subs,
		Dialect: &swarm.Push{Topics: func(n int) []string { return []string{topicOf(n)} }, HeartbeatMs: never},
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
	perSecond := float64(deliveriesPerSecond) * float64(topics) / float64(b.subs)
	if err := b.publishOpen(ctx, m.Router.Addr, s, topicOf, perSecond, time.Second); err != nil {
		return nil, err
	}
	counted = true
	err = b.publishOpen(ctx, m.Router.Addr, s, topicOf, perSecond, 12*time.Second)
	return took, err
}

// publishOpen publishes to one topic after the other at a rate, while the swarm receives, until all has come.
func (b *bench) publishOpen(ctx context.Context, router string, s *swarm.Swarm, topicOf func(int) string, perSecond float64, span time.Duration) error {
	src, err := publisher.New(ctx, router, topicOf(0), b.size)
	if err != nil {
		return err
	}
	topics := 1
	for topicOf(topics) != topicOf(0) {
		topics++
	}
	total := int(perSecond*span.Seconds()) / topics * topics
	s.Restart()
	s.Await(total / topics)
	sent := make(chan error, 1)
	go func() { sent <- publishDue(ctx, src, topicOf, perSecond, total) }()
	err = s.Until(20 * time.Second)
	return errors.Join(err, <-sent, src.Close())
}

func publishDue(ctx context.Context, src *publisher.Publisher, topicOf func(int) string, perSecond float64, total int) error {
	began := time.Now()
	due := func(n int) time.Time { return began.Add(time.Duration(float64(n) / perSecond * float64(time.Second))) }
	for n := range total {
		time.Sleep(time.Until(due(n)))
		if err := errors.Join(src.PublishTo([]string{topicOf(n)}, due(n)), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// percentile in ms; it sorts.
func percentile(took []time.Duration, p float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[min(len(took)-1, int(float64(len(took))*p))]) / float64(time.Millisecond)
}
