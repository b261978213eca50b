package compute

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// filterConns with filtersEach subscriptions to one topic: as many distinct filters as an edge
	// takes.
	filterConns, filtersEach = 40, 250
	filterRate               = 20 // messages a second
	filterLagGoal            = 50 // ms
	filterTopic              = "bench/where"
	filterSpan               = 11 * time.Second // the lag is that of the last 10
)

// filtered are connections whose subscriptions have a filter each, of which one takes a message; or
// none has.
type filtered struct {
	swarm.Push
	plain bool
}

// Hello writes Hello and every Subscribe.
func (d *filtered) Hello(n int) ([]byte, int) {
	b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: fmt.Sprintf("where-%d", n), HeartbeatMs: swarm.Never})
	for i := range filtersEach {
		s := &wirev1.Subscribe{Id: uint32(i + 1), Filter: filterTopic}
		if !d.plain {
			s.Where = fmt.Sprintf("features.kind == %d.0", n*filtersEach+i)
		}
		if err == nil {
			b, err = wire.Append(b, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, s)
		}
	}
	if err != nil {
		panic(err) // topics come from the program itself
	}
	return b, filtersEach
}

// filters measures loop lag while messages of a topic with very many content filters come, beside a
// control: as many subscriptions without one.
func (b *bench) filters(ctx context.Context) error {
	var found [2]filterLag
	for i, plain := range []bool{true, false} {
		var err error
		if found[i], err = b.filterRound(ctx, plain); err != nil {
			return err
		}
	}
	control, with := found[0], found[1]
	what := fmt.Sprintf("%d distinct filters on a topic, %d messages/s: loop lag", filterConns*filtersEach, filterRate)
	b.Add(
		table.AtMost(what+" max", with.messages.most, "ms", filterLagGoal, fmt.Sprintf("p99 %.3g; as many subscriptions without filters: max %.3g, p99 %.3g; %d of %d deliveries, CPU of the edge %.2f ms a message, without filters %.2f",
			with.messages.p99, control.messages.most, control.messages.p99, with.deliveries, with.sent, with.cpu, control.cpu)),
		table.AtMost(what+" max while they subscribe", with.subscribe.most, "ms", filterLagGoal, fmt.Sprintf("p99 %.3g, it took %.2f s; without filters: max %.3g, %.2f s", with.subscribe.p99, with.took.Seconds(),
			control.subscribe.most, control.took.Seconds())),
	)
	return nil
}

type filterLag struct {
	subscribe, messages lag
	took                time.Duration
	sent, deliveries    int
	cpu                 float64 // ms a message
}

func (b *bench) filterRound(ctx context.Context, plain bool) (f filterLag, err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1, "--where-budget", "100ms"))
	defer m.Stop()
	edge := m.Edges[0]
	began := time.Now()
	s := try.Get(swarm.Dial(ctx, swarm.Config{Addr: edge.Addr, Conns: filterConns, Dialect: &filtered{plain: plain}, Message: func(int, []byte) { f.deliveries++ }}))
	defer func() { err = errors.Join(err, s.Close()) }()
	f.took = time.Since(began)
	f.subscribe = try.Get(edgeLag(ctx, edge))
	err = f.publish(ctx, m, s)
	if err == nil {
		f.messages, err = edgeLag(ctx, edge)
	}
	if want := f.sent; err == nil && !plain && f.deliveries != want {
		err = fmt.Errorf("%d of %d messages were delivered", f.deliveries, want)
	}
	return f, err
}

// publish sends messages while the swarm reads; each is for one filter.
func (f *filterLag) publish(ctx context.Context, m *local.Mesh, s *swarm.Swarm) (err error) {
	defer try.Catch(&err)
	conn := try.Get(suite.Dial(m.Router.Addr))
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	before := try.Get(procfs.CPU(m.PIDs()...))
	f.sent = int(filterSpan.Seconds() * filterRate)
	done := make(chan error, 1)
	go func() {
		done <- flow.Due(ctx, f.sent, filterRate, flow.Yield, func(n int, _ time.Time) error {
			_, err := api.Publish(ctx, &pushmeshv1.PublishRequest{Topic: filterTopic, Payload: make([]byte, fanSize), Features: map[string]float64{"kind": float64((n + 1) * 37 % (filterConns * filtersEach))}})
			return err
		})
	}()
	for published := false; !published; {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			published = true
		default:
			try.Do(s.Turn(20 * time.Millisecond))
		}
	}
	for began := time.Now(); f.deliveries < f.sent && time.Since(began) < 10*time.Second; {
		try.Do(s.Turn(20 * time.Millisecond))
	}
	after, err := procfs.CPU(m.PIDs()...)
	f.cpu = (after - before).Seconds() * 1000 / float64(f.sent)
	return err
}
