package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// parked is what many connections cost a server.
type parked struct {
	perConn float64 // resident bytes
	accepts float64 // connections per second of CPU
	idle    float64 // percent of a core
	alone   float64 // the same before there were any
	fullest float64 // connections of the fullest loop by those of the average one
	rates   []float64
}

// idle opens many connections to the edge and, one after the other, to its peers; with all of them
// there it also measures the large fan-out.
func (b *bench) idle(ctx context.Context) (err error) {
	defer try.Catch(&err)
	edge := try.Get(b.parkEdge(ctx))
	var mem, accepts, fans, idles []string
	redis := 0.0
	for _, name := range []string{"redis", "mosquitto", "nats"} {
		p, err := b.parkPeer(ctx, name)
		switch {
		case errors.Is(err, local.ErrNotInstalled):
			mem = append(mem, name+" not installed")
			continue
		case err != nil:
			mem = append(mem, fmt.Sprintf("%s failed: %.100s", name, err.Error()))
			continue
		}
		mem = append(mem, fmt.Sprintf("%s %.0f", name, p.perConn))
		accepts = append(accepts, fmt.Sprintf("%s %.0f", name, p.accepts))
		idles = append(idles, fmt.Sprintf("%s %.2f", name, p.idle))
		if len(p.rates) > 0 {
			fans = append(fans, fmt.Sprintf("%s %.0f", name, table.Median(p.rates)))
		}
		if name == "redis" {
			redis = table.Median(p.rates)
		}
	}
	n := fmt.Sprintf("%d", b.conns)
	b.Add(
		table.AtMost("RSS per idle connection, "+n+" connections, one subscription", edge.perConn, "B", 512, strings.Join(mem, ", ")),
		table.AtLeast("accept + hello + subscribe, per second of one core", edge.accepts, "1/s", 20_000, strings.Join(accepts, ", ")),
		table.AtMost("CPU of "+n+" idle connections, 30 s heartbeats", edge.idle, "% of a core", 0.5,
			fmt.Sprintf("%s (edge without any: %.2f)", strings.Join(idles, ", "), edge.alone)),
	)
	b.Add(table.Figure("connections of the fullest loop by the average", edge.fullest, "×", "spread by the kernel's hash over SO_REUSEPORT listeners"))
	name := "fan-out to " + n + " subscribers, window 64"
	rate := table.Median(edge.rates)
	if redis > 0 {
		b.Add(table.AtLeast(name, rate, "1/s", float64(int(2*redis)), strings.Join(fans, ", ")+fmt.Sprintf(" (%.2f × redis)", rate/redis)))
	} else {
		b.Add(table.Figure(name, rate, "1/s", strings.Join(append(fans, "redis not installed"), ", ")))
	}
	return nil
}

// park opens the connections to a server and measures them once they have idled a while.
func (b *bench) park(ctx context.Context, server *local.Process, d swarm.Dialect, hold time.Duration) (*swarm.Swarm, parked, error) {
	var p parked
	const alone = 2 * time.Second
	fresh, err := procfs.CPU(server.PID())
	if err != nil {
		return nil, p, err
	}
	time.Sleep(alone)
	rss, err := procfs.RSS(server.PID())
	if err != nil {
		return nil, p, err
	}
	cpu, err := procfs.CPU(server.PID())
	if err != nil {
		return nil, p, err
	}
	p.alone = (cpu - fresh).Seconds() / alone.Seconds() * 100
	s, err := swarm.Dial(ctx, swarm.Config{Addr: server.Addr, Dialect: d, Conns: b.conns, Heartbeat: 30 * time.Second})
	if err != nil {
		return nil, p, err
	}
	up, err := procfs.CPU(server.PID())
	if err != nil {
		return s, p, err
	}
	p.accepts = float64(b.conns) / (up - cpu).Seconds()
	// What connecting left behind is not what idling costs: a first second is not counted.
	if err := s.Hold(time.Now().Add(time.Second)); err != nil {
		return s, p, err
	}
	quiet, err := procfs.CPU(server.PID())
	if err != nil {
		return s, p, err
	}
	if err := s.Hold(time.Now().Add(hold)); err != nil {
		return s, p, err
	}
	end, err := procfs.CPU(server.PID())
	if err != nil {
		return s, p, err
	}
	p.idle = (end - quiet).Seconds() / hold.Seconds() * 100
	after, err := procfs.RSS(server.PID())
	p.perConn = float64(after-rss) / float64(b.conns)
	return s, p, errors.Join(err, ctx.Err())
}

func (b *bench) parkEdge(ctx context.Context) (p parked, err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	defer m.Stop()
	d := swarm.Subscribe(topic)
	d.HeartbeatMs = 30_000
	s, p, err := b.park(ctx, m.Edges[0], d, b.hold)
	if s != nil {
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	if err != nil {
		return p, err
	}
	figures := try.Get(m.Edges[0].Metrics(ctx))
	p.fullest = figures[fullest] * figures[loops] / float64(b.conns) // 1 is even
	if want := uint64(b.conns) * 9 / 10; b.hold >= 30*time.Second && s.Pongs() < want {
		return p, fmt.Errorf("only %d pings were answered", s.Pongs())
	}
	done := b.Profiles(ctx, "idle", 20, m.Edges[0])
	if b.Profile != "" {
		err = errors.Join(b.Heap(ctx, "idle", m.Edges[0]), s.Hold(time.Now().Add(21*time.Second)))
	}
	try.Do(errors.Join(err, done()))
	src := try.Get(publisher.New(ctx, m.Router.Addr, topic, b.size))
	t := newTarget("edge", m.Edges[0], b.conns)
	t.Swarm, t.Source = s, src
	defer func() { err = errors.Join(err, src.Close()) }()
	p.rates, err = b.largeFanout(ctx, t)
	return p, errors.Join(err, b.cpuProfile(ctx, t, "fanout", 64))
}

func (b *bench) parkPeer(ctx context.Context, name string) (p parked, err error) {
	defer try.Catch(&err)
	server := try.Get(b.peer(ctx, name))
	defer local.Stop(server)
	d, source := b.dialect(ctx, name, server.Addr)
	s, p, err := b.park(ctx, server, d, 6*time.Second)
	if s != nil {
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	if err != nil || name != "redis" {
		return p, err
	}
	src := try.Get(source())
	defer func() { err = errors.Join(err, src.Close()) }()
	t := newTarget(name, server, b.conns)
	t.Swarm, t.Source = s, src
	p.rates, err = b.largeFanout(ctx, t)
	return p, err
}

func (b *bench) largeFanout(ctx context.Context, t *target) ([]float64, error) {
	var rates []float64
	for range b.Rounds {
		s, err := t.Pump(ctx, 64, 2*b.Span)
		if err != nil {
			return rates, err
		}
		rates = append(rates, s.Rate())
	}
	return rates, nil
}
