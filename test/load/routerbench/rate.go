package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	payload = 128  // bytes
	topics  = 1000 // each with one subscriber
	edges   = 2
	never   = 600_000 // ms, the heartbeat that clients promise: none falls due
	// rateGoal is in messages a second.
	rateGoal = 200_000
)

func topic(n int) string { return fmt.Sprintf("live/%d", n) }

// rate publishes ephemeral messages over one stream, as fast as a window lets it, to topics with a subscriber each on one of the edges.
func (b *bench) rate(ctx context.Context) (err error) {
	m, err := b.dir.StartMesh(ctx, b.programs, edges)
	if err != nil {
		return err
	}
	defer m.Stop()
	var subs []*swarm.Swarm
	for i, e := range m.Edges {
		s, err := swarm.Dial(ctx, swarm.Config{
			Addr: e.Addr, Conns: topics / edges, First: i * topics / edges,
			Dialect: &swarm.Push{Topics: func(n int) []string { return []string{topic(n)} }, HeartbeatMs: never},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		subs = append(subs, s)
	}
	all := make([]string, topics)
	for i := range all {
		all[i] = topic(i)
	}
	h, err := firehose.Dial(ctx, firehose.Config{Addr: m.Router.Addr, Topics: all, Size: payload, Window: 16})
	if err != nil {
		return err
	}
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := h.Run(ctx, b.span)
		done <- err
	}()
	received := func() (n int64, err error) {
		for _, s := range subs {
			err = errors.Join(err, s.Turn(time.Millisecond))
			n += int64(s.Received())
		}
		return n, err
	}
	for {
		n, err := received()
		if err != nil {
			return err
		}
		select {
		case err = <-done:
			done <- err
		default:
			continue
		}
		if err != nil {
			return err
		}
		if n >= h.Answered() {
			took := time.Since(began)
			b.add(table.AtLeast("ephemeral publishes over one stream, delivered", float64(n)/took.Seconds(), "messages/s", rateGoal,
				fmt.Sprintf("%d topics with a subscriber each on %d edges, %d B, %d refused", topics, edges, payload, h.Refused())))
			return nil
		}
		if time.Since(began) > b.span+20*time.Second {
			return fmt.Errorf("%d of %d messages were delivered", n, h.Answered())
		}
	}
}
