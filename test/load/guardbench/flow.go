package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
)

// neverMs is a heartbeat longer than any part, in milliseconds.
const neverMs = 600_000

// flow is a broadcast in an open loop: messages leave when they are due, and a late one counts from
// when it was due.
type flow struct {
	swarm     *swarm.Swarm
	topic     string
	perSecond float64
	took      []time.Duration // of each delivery that counts
	counts    bool
}

// dial connects the subscribers of a flow.
func dialFlow(ctx context.Context, addr, topic string, conns int, perSecond float64) (*flow, error) {
	f := &flow{topic: topic, perSecond: perSecond}
	var err error
	f.swarm, err = swarm.Dial(ctx, swarm.Config{
		Addr: addr, Conns: conns, Dialect: &swarm.Push{Topics: func(int) []string { return []string{topic} }, HeartbeatMs: neverMs},
		Message: func(_ int, frame []byte) {
			if at, ok := publisher.Stamped(frame); ok && f.counts {
				f.took = append(f.took, time.Since(at))
			}
		},
	})
	return f, err
}

// run publishes for a span and gives the median and the p99 of deliveries in ms, and how many
// messages there were. Half a second before does not count.
func (f *flow) run(ctx context.Context, router string, span time.Duration) (p50, p99 float64, sent int, err error) {
	f.took, f.counts = f.took[:0], false
	warm, err := f.publish(ctx, router, 500*time.Millisecond)
	if err != nil {
		return 0, 0, 0, err
	}
	f.counts = true
	sent, err = f.publish(ctx, router, span)
	return percentile(f.took, 0.5), percentile(f.took, 0.99), warm + sent, err
}

func (f *flow) publish(ctx context.Context, router string, span time.Duration) (total int, err error) {
	src, err := publisher.New(ctx, router, f.topic, 128)
	if err != nil {
		return 0, err
	}
	total = max(1, int(f.perSecond*span.Seconds()))
	f.swarm.Restart()
	f.swarm.Await(total)
	sent := make(chan error, 1)
	go func() { sent <- publishDue(ctx, src, f.topic, f.perSecond, total) }()
	err = f.swarm.Until(20 * time.Second)
	return total, errors.Join(err, <-sent, src.Close())
}

func publishDue(ctx context.Context, src *publisher.Publisher, topic string, perSecond float64, total int) error {
	// Go's own timers may be a millisecond late where nothing else goes on: that would be measured
	// as the server's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	for n := range total {
		due := began.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			rest := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&rest, nil) // a signal may cut it short
		}
		if err := errors.Join(src.PublishTo([]string{topic}, due), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// fill publishes n messages of so many bytes to a topic, each once the one before is stored.
func fill(ctx context.Context, router, topic string, n, size, batch int) error {
	p, err := publisher.New(ctx, router, topic, size)
	if err != nil {
		return err
	}
	for ; n > 0 && err == nil; n -= batch {
		err = errors.Join(p.Publish(min(n, batch)), p.Wait(ctx))
	}
	return errors.Join(err, p.Close())
}

// earliest subscribes to one topic from its beginning.
type earliest struct {
	swarm.Push
	topic string
}

// Hello writes Hello and Subscribe at once.
func (d *earliest) Hello(n int) ([]byte, int) {
	b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: fmt.Sprint("late-", n), HeartbeatMs: neverMs})
	if err == nil {
		b, err = wire.Append(b, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: d.topic, Start: wirev1.Start_START_EARLIEST})
	}
	if err != nil {
		panic(err) // topics come from the program itself
	}
	return b, 1
}

// figures of an edge's metrics, by name and labels.
func figures(ctx context.Context, p *local.Process) (map[string]float64, error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all, nil
}

// percentile in ms; it sorts.
func percentile(took []time.Duration, p float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[min(len(took)-1, int(float64(len(took))*p))]) / float64(time.Millisecond)
}

// median of some figures; it sorts.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
