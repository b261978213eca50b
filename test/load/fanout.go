package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fanout publishes the messages, at most a window of them ahead of the slowest, and says what that cost the server.
func fanout(ctx context.Context, c *config, p protocol, f *fleet) ([]row, error) {
	src, err := p.publisher(ctx)
	if err != nil {
		return nil, err
	}
	before, err := usageOf(c.pids)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	began := time.Now()
	if err := pump(ctx, c, f, src); err != nil {
		return nil, errors.Join(err, src.Close())
	}
	took := time.Since(began)
	after, err := usageOf(c.pids)
	if err := errors.Join(err, src.Close()); err != nil {
		return nil, err
	}
	deliveries := float64(c.msgs) * float64(c.conns)
	lat := f.latencies()
	if len(lat) == 0 {
		return nil, errors.New("no delivery carried a stamp")
	}
	name := fmt.Sprintf("%s fan-out to %d, window %d", c.name, c.conns, c.window)
	return []row{
		{Name: name + ": rate", Value: deliveries / took.Seconds(), Unit: "deliveries/s"},
		{Name: name + ": server CPU", Value: (after.cpu - before.cpu).Seconds() * 1e6 / deliveries, Unit: "µs/delivery"},
		{Name: name + ": latency p50", Value: ms(lat[len(lat)/2]), Unit: "ms"},
		{Name: name + ": latency p99", Value: ms(lat[len(lat)*99/100]), Unit: "ms"},
	}, nil
}

// pump publishes until everyone has everything.
func pump(ctx context.Context, c *config, f *fleet, src source) error {
	for sent := 0; ; {
		done, err := f.everywhere()
		if err != nil {
			return err
		}
		if done == c.msgs {
			return nil
		}
		if n := min(c.window-(sent-done), c.msgs-sent); n > 0 {
			if err := src.Publish(n); err != nil {
				return err
			}
			sent += n
			continue
		}
		select {
		case <-f.progress:
		case <-ctx.Done():
			return fmt.Errorf("INCOMPLETE: %d of %d deliveries: %w", f.received.Load(), c.msgs*c.conns, ctx.Err())
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func idleRows(c *config, before, after usage) []row {
	name := fmt.Sprintf("%s, %d idle connections", c.name, c.conns)
	n := float64(c.conns)
	return []row{
		{Name: name + ": memory", Value: float64(after.rss-before.rss) / n, Unit: "B/connection"},
		{Name: name + ": CPU to connect and subscribe", Value: (after.cpu - before.cpu).Seconds() * 1e6 / n, Unit: "µs/connection"},
	}
}
