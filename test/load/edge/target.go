package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/fan"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

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
		local.Stop(t.server)
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

// edgeTarget subscribes to a topic of an edge and publishes to it through the router.
func (b *bench) edgeTarget(ctx context.Context, m *local.Mesh, name, topic string, conns int) (*target, error) {
	t := newTarget(name, m.Edges[0], conns)
	return t.connect(ctx, swarm.Subscribe(topic), func() (fan.Source, error) {
		return publisher.New(ctx, m.Router.Addr, topic, b.size)
	})
}

const topic = "bench/all"

// peer starts a server that isn't ours.
func (b *bench) peer(ctx context.Context, name string) (*local.Process, error) {
	switch name {
	case "redis":
		return b.Dir.StartRedis(ctx)
	case "mosquitto":
		return b.Dir.StartMosquitto(ctx)
	case "nats":
		return b.Dir.StartNATS(ctx, b.Programs.NATS)
	}
	return b.Dir.StartBare(ctx, b.Tools, name)
}

// dialect of a server that isn't ours, and a publisher to it.
func (b *bench) dialect(ctx context.Context, name, addr string) (swarm.Dialect, func() (fan.Source, error)) {
	switch name {
	case "redis":
		return swarm.Redis(topic, b.size), func() (fan.Source, error) { return publisher.Redis(ctx, addr, topic, b.size) }
	case "mosquitto":
		return &swarm.MQTT{Topic: topic}, func() (fan.Source, error) { return publisher.MQTT(ctx, addr, topic, b.size) }
	case "nats":
		return swarm.NATS(topic, b.size), func() (fan.Source, error) { return publisher.NATS(ctx, addr, topic, b.size) }
	}
	return &swarm.Bare{Size: b.size}, func() (fan.Source, error) { return publisher.Bare(ctx, addr, b.size) }
}

// peerTarget starts a server that isn't ours, with subscribers.
func (b *bench) peerTarget(ctx context.Context, name string, conns int) (_ *target, err error) {
	defer try.Catch(&err)
	p := try.Get(b.peer(ctx, name))
	t := newTarget(name, p, conns)
	t.owned = true
	d, src := b.dialect(ctx, name, p.Addr)
	return t.connect(ctx, d, src)
}
