package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	// floodSubs get floodRate messages a second while a neighbour floods their loop.
	floodSubs, floodRate = 200, 100
	floodSpan            = 3 * time.Second
)

// flood measures what a client that sends as fast as it can does to the deliveries of its loop's
// other connections. The same flood to another edge is what it is compared with: that takes the
// machine as much.
func (b *bench) flood(ctx context.Context) (err error) {
	m, err := b.dir.StartMesh(ctx, b.programs, 2, "--loops", "1")
	if err != nil {
		return err
	}
	defer m.Stop()
	f := &flooded{bench: b, mesh: m}
	f.swarm, err = swarm.Dial(ctx, swarm.Config{
		Addr: m.Edges[0].Addr, Conns: floodSubs, Dialect: &swarm.Push{Topics: oneTopic(topic), HeartbeatMs: never}, Message: f.message,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.swarm.Close()) }()
	// Who is measured comes before who floods, where that is allowed: this is not about the
	// machine's scheduler.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0) }()
	quiet, err := f.round(ctx, nil)
	if err != nil {
		return err
	}
	var elsewhere, here []float64
	for range b.rounds {
		for i, into := range []*[]float64{&elsewhere, &here} {
			v, err := f.round(ctx, m.Edges[1-i])
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
	}
	b.rows = append(b.rows,
		table.AtMost("delivery p99 beside a client that floods the loop, as a ratio to one that floods another edge", ratio(here, elsewhere), "×", 1.2,
			fmt.Sprintf("%.3g ms and %.3g ms, %.3g ms without any, %.0f frames/s of the flood handled", table.Median(here), table.Median(elsewhere), quiet, f.frames)))
	return nil
}

type flooded struct {
	*bench
	mesh    *local.Mesh
	swarm   *swarm.Swarm
	took    []time.Duration
	counted bool
	frames  float64 // of the flood, that the loop handled in a second
}

func (f *flooded) message(_ int, frame []byte) {
	if at, ok := publisher.Stamped(frame); ok && f.counted {
		f.took = append(f.took, time.Since(at))
	}
}

// round is the p99 of deliveries at the first edge, in ms, while a client floods the edge given.
func (f *flooded) round(ctx context.Context, at *local.Process) (p99 float64, err error) {
	if at != nil {
		stop, err := startFlood(at.Addr)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	load := open{topics: 1, topicOf: func(int) string { return topic }, perSecond: floodRate}
	load.source = func(ctx context.Context) (stamping, error) {
		return publisher.New(ctx, f.mesh.Router.Addr, topic, f.size)
	}
	if err := load.publish(ctx, f.swarm, time.Second/2); err != nil {
		return 0, err
	}
	before, err := figures(ctx, f.mesh.Edges[0])
	if err != nil {
		return 0, err
	}
	f.took, f.counted = f.took[:0], true
	err = load.publish(ctx, f.swarm, floodSpan)
	f.counted = false
	if err != nil {
		return 0, err
	}
	if at == f.mesh.Edges[0] {
		after, err := figures(ctx, at)
		if err != nil {
			return 0, err
		}
		if f.frames = (after[framesRead] - before[framesRead]) / floodSpan.Seconds(); f.frames < 10_000 {
			return 0, fmt.Errorf("the flood was %.0f frames/s alone", f.frames)
		}
	}
	return table.Quantile(f.took, 0.99), nil
}

const framesRead = "pushmesh_edge_frames_read_total"

// startFlood has a connection send frames of all kinds as fast as they are taken, until stop.
func startFlood(addr string) (stop func() error, err error) {
	c, err := dialClient(addr)
	if err != nil {
		return nil, err
	}
	var stopping atomic.Bool
	ended := make(chan error, 2)
	thread := func(f func() error) {
		go func() {
			// not unlocked: the thread ends with the goroutine, and its rank with it
			runtime.LockOSThread()
			_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 10)
			for !stopping.Load() {
				if err := f(); err != nil && !stopping.Load() {
					ended <- fmt.Errorf("flood: %w", err)
					return
				}
			}
			ended <- nil
		}()
	}
	frames := floodFrames()
	thread(func() error { return c.send(frames) })
	thread(func() error {
		n, err := unix.Read(c.fd, c.room)
		if errors.Is(err, unix.EINTR) {
			return nil
		}
		if err == nil && n == 0 {
			return errors.New("closed by the edge")
		}
		return err
	})
	return func() error {
		stopping.Store(true)
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // wakes both
		return errors.Join(<-ended, <-ended, c.close())
	}, nil
}

// floodFrames are some hundred frames: Pings, subscriptions that come and go, and frames of no
// known type, small ones and one of half of max_frame.
func floodFrames() []byte {
	var b []byte
	for i := range 64 {
		id := uint32(i + 1)
		b = append(b, frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: id, Filter: fmt.Sprintf("bench/flood/%d", i)})...)
		for range 8 {
			b = append(b, frame(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(i)})...)
		}
		b = append(b, frame(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})...)
		b = append(b, unknownFrame(i)...)
	}
	return append(b, unknownFrame(512<<10)...)
}

// unknownFrame is of a type that an edge skips.
func unknownFrame(size int) []byte {
	b := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(b, size, 0xf0)
	return b
}
