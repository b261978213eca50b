package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/fan"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
)

// heartbeats that push clients promise while they are measured, so that none falls due.
const never = 600_000

// target is one server with subscribers and a publisher.
type target struct {
	fan.Out
	server *local.Process
	owned  bool // the server ends with the target
}

func (t *target) close() error {
	var errs []error
	if t.Source != nil {
		errs = append(errs, t.Source.Close())
	}
	if t.Swarm != nil {
		errs = append(errs, t.Swarm.Close())
	}
	if t.owned {
		t.server.Stop()
	}
	return errors.Join(errs...)
}

func newTarget(name string, p *local.Process, conns int) *target {
	return &target{Out: fan.Out{Name: name, PIDs: []int{p.PID()}, Conns: conns}, server: p}
}

// connect opens the subscribers and the publisher of a server.
func (t *target) connect(ctx context.Context, d swarm.Dialect, src func() (fan.Source, error)) (*target, error) {
	var err error
	if t.Swarm, err = swarm.Dial(ctx, swarm.Config{Addr: t.server.Addr, Dialect: d, Conns: t.Conns, Heartbeat: 30 * time.Second}); err == nil {
		t.Source, err = src()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", t.Name, err), t.close())
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
	t := newTarget(name, m.Edges[0], conns)
	return t.connect(ctx, &swarm.Push{Topics: oneTopic(topic), HeartbeatMs: never}, func() (fan.Source, error) {
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
	t := newTarget(name, p, conns)
	t.owned = true
	var d swarm.Dialect
	var src func() (fan.Source, error)
	switch name {
	case "redis":
		d, src = swarm.Redis(topic, b.size), func() (fan.Source, error) { return publisher.Redis(ctx, p.Addr, topic, b.size) }
	case "mosquitto":
		d, src = &swarm.MQTT{Topic: topic}, func() (fan.Source, error) { return publisher.MQTT(ctx, p.Addr, topic, b.size) }
	case "nats":
		d, src = swarm.NATS(topic, b.size), func() (fan.Source, error) { return publisher.NATS(ctx, p.Addr, topic, b.size) }
	default:
		d, src = &swarm.Bare{Size: b.size}, func() (fan.Source, error) { return publisher.Bare(ctx, p.Addr, b.size) }
	}
	return t.connect(ctx, d, src)
}
