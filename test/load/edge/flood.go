package edge

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
	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
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
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 2, "--loops", "1"))
	defer m.Stop()
	f := try.Get(flow.Broadcast(ctx, m.Router.Addr, m.Edges[0].Addr, topic, floodSubs, floodRate))
	defer func() { err = errors.Join(err, f.Swarm.Close()) }()
	// Who is measured comes before who floods: this is not about the machine's scheduler.
	f.First = true
	try.Get(f.Run(ctx, time.Second/2, floodSpan))
	quiet := table.Quantile(f.Took, 0.99)
	var elsewhere, here, frames []float64
	for range b.Rounds {
		for i, into := range []*[]float64{&elsewhere, &here} {
			handled := try.Get(beside(ctx, f, m.Edges[1-i]))
			*into = append(*into, table.Quantile(f.Took, 0.99))
			if frames = append(frames, handled); i == 1 && handled < 10_000 {
				return fmt.Errorf("the flood was %.0f frames/s alone", handled)
			}
		}
	}
	b.Add(
		table.AtMost("delivery p99 beside a client that floods the loop, as a ratio to one that floods another edge", table.Ratio(here, elsewhere), "×", 1.2,
			fmt.Sprintf("%.3g ms and %.3g ms, %.3g ms without any, %.0f frames/s of the flood handled", table.Median(here), table.Median(elsewhere), quiet, frames[len(frames)-1])))
	return nil
}

// beside runs the flow while a client floods an edge, and says how many frames of the flood are
// handled there in a second.
func beside(ctx context.Context, f *flow.Flow, at *local.Process) (frames float64, err error) {
	defer try.Catch(&err)
	stop := try.Get(startFlood(at.Addr))
	defer func() { err = errors.Join(err, stop()) }()
	before := try.Get(at.Metrics(ctx))
	began := time.Now()
	try.Get(f.Run(ctx, time.Second/2, floodSpan))
	after := try.Get(at.Metrics(ctx))
	return (after[framesRead] - before[framesRead]) / time.Since(began).Seconds(), nil
}

const framesRead = "pushmesh_edge_frames_read_total"

// startFlood has a connection send frames of all kinds as fast as they are taken, until stop.
func startFlood(addr string) (stop func() error, err error) {
	defer try.Catch(&err)
	c := try.Get(dialClient(addr))
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
