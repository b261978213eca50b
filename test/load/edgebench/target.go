package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
)

// heartbeats that push clients promise while they are measured, so that none falls due.
const never = 600_000

// source publishes n messages at once; the answers of the server are not waited for.
type source interface {
	Publish(n int) error
	Close() error
}

// target is one server with subscribers and a publisher.
type target struct {
	name   string
	server *local.Process
	swarm  *swarm.Swarm
	source source
	owned  bool // the server ends with the target
}

// sample is what one measurement found.
type sample struct {
	deliveries int
	cpu, wall  time.Duration
}

// perDelivery is the server's CPU, in µs.
func (s sample) perDelivery() float64 { return s.cpu.Seconds() * 1e6 / float64(s.deliveries) }

// rate is deliveries per second.
func (s sample) rate() float64 { return float64(s.deliveries) / s.wall.Seconds() }

func (t *target) close() error {
	var errs []error
	if t.source != nil {
		errs = append(errs, t.source.Close())
	}
	if t.swarm != nil {
		errs = append(errs, t.swarm.Close())
	}
	if t.owned {
		t.server.Stop()
	}
	return errors.Join(errs...)
}

// pump keeps window messages in flight for a while and then waits for the last. New ones go out in halves of a window, each as one
// batch, as soon as every subscriber has the half before: so a server always has work, and gets it in bulk.
func (t *target) pump(ctx context.Context, window, conns int, span time.Duration) (sample, error) {
	const patience = 20 * time.Second
	half := (window + 1) / 2
	t.swarm.Restart()
	cpu, err := procfs.CPU(t.server.PID())
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	sent := 0
	publish := func(n int) error { sent += n; return t.source.Publish(n) }
	if err := publish(window); err != nil {
		return sample{}, err
	}
	for first := true; ; first = false {
		if !first && time.Since(began) < span && ctx.Err() == nil {
			if err := publish(half); err != nil {
				return sample{}, err
			}
			t.swarm.Await(sent - window + half)
		} else if first {
			t.swarm.Await(half)
		} else {
			t.swarm.Await(sent)
		}
		last := t.swarm.Goal() == sent && time.Since(began) >= span
		if err := t.swarm.Until(patience); err != nil {
			return sample{}, fmt.Errorf("%s, window %d: %w", t.name, window, err)
		}
		if last || ctx.Err() != nil {
			break
		}
	}
	wall := time.Since(began)
	after, err := procfs.CPU(t.server.PID())
	return sample{deliveries: sent * conns, cpu: after - cpu, wall: wall}, errors.Join(err, ctx.Err())
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 && n > 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// connect opens the subscribers and the publisher of a server.
func (t *target) connect(ctx context.Context, d swarm.Dialect, conns int, src func() (source, error)) (*target, error) {
	var err error
	if t.swarm, err = swarm.Dial(ctx, swarm.Config{Addr: t.server.Addr, Dialect: d, Conns: conns, Heartbeat: 30 * time.Second}); err == nil {
		t.source, err = src()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", t.name, err), t.close())
	}
	return t, nil
}

// oneTopic is the same topic for everyone.
func oneTopic(topic string) func(int) []string {
	all := []string{topic}
	return func(int) []string { return all }
}

// edgeTarget subscribes to a topic of an edge and publishes to it through the router.
func (b *bench) edgeTarget(ctx context.Context, m *local.Mesh, name, topic string, conns int) (*target, error) {
	t := &target{name: name, server: m.Edges[0]}
	return t.connect(ctx, &swarm.Push{Topics: oneTopic(topic), HeartbeatMs: never}, conns, func() (source, error) {
		return publisher.New(ctx, m.Router.Addr, topic, b.size)
	})
}

const topic = "bench/all"

// peer starts a server that isn't ours.
func (b *bench) peer(ctx context.Context, name string) (*local.Process, error) {
	switch name {
	case "redis":
		return b.dir.StartRedis(ctx)
	case "mosquitto":
		return b.dir.StartMosquitto(ctx)
	case "nats":
		return b.dir.StartNATS(ctx, b.programs.NATS)
	}
	return b.dir.StartBare(ctx, b.bare, name)
}

// peerTarget starts a server that isn't ours, with subscribers.
func (b *bench) peerTarget(ctx context.Context, name string, conns int) (*target, error) {
	p, err := b.peer(ctx, name)
	if err != nil {
		return nil, err
	}
	t := &target{name: name, server: p, owned: true}
	var d swarm.Dialect
	var src func() (source, error)
	switch name {
	case "redis":
		d, src = swarm.Redis(topic, b.size), func() (source, error) { return publisher.Redis(ctx, p.Addr, topic, b.size) }
	case "mosquitto":
		d, src = &swarm.MQTT{Topic: topic}, func() (source, error) { return publisher.MQTT(ctx, p.Addr, topic, b.size) }
	case "nats":
		d, src = swarm.NATS(topic, b.size), func() (source, error) { return publisher.NATS(ctx, p.Addr, topic, b.size) }
	default:
		d, src = &swarm.Bare{Size: b.size}, func() (source, error) { return publisher.Bare(ctx, p.Addr, b.size) }
	}
	return t.connect(ctx, d, conns, src)
}
