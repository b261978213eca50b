package guard

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// atATime is how many clients connect at once.
const atATime = 16

// crowd is clients with a goroutine each, plain or with TLS, that count what they get together.
type crowd struct {
	conns []net.Conn
	got   atomic.Int64
	goal  atomic.Int64
	there chan struct{} // holds one where the goal was reached
	ended sync.WaitGroup
}

// connect opens n of them, subscribed to a topic; with TLS where cfg is given.
func connect(ctx context.Context, addr string, n int, cfg *tls.Config, topic string) (*crowd, error) {
	c := &crowd{conns: make([]net.Conn, n), there: make(chan struct{}, 1)}
	err := each(n, func(i int) (err error) {
		defer try.Catch(&err)
		conn := try.Get(dial(ctx, addr, cfg))
		c.conns[i] = conn
		r := bufio.NewReader(conn)
		try.Do(greet(conn, r, topic))
		c.ended.Go(func() { c.count(r) })
		return nil
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// each calls f for 0 to n-1, atATime of them at once.
func each(n int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, atATime)
	var all sync.WaitGroup
	for w := range atATime {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func dial(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error) {
	if cfg == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
}

// greet says Hello and subscribes.
func greet(conn net.Conn, r *bufio.Reader, topic string) error {
	frames, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, HeartbeatMs: swarm.Never})
	if err == nil {
		frames, err = wire.Append(frames, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: topic})
	}
	if err == nil {
		_, err = conn.Write(frames)
	}
	for _, want := range []wirev1.FrameType{wirev1.FrameType_FRAME_TYPE_WELCOME, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED} {
		if err != nil {
			return err
		}
		var ft wirev1.FrameType
		var body []byte
		if ft, body, err = wire.Read(r, nil, wire.MaxBody); err == nil && ft != want {
			var e wirev1.Error
			_ = proto.Unmarshal(body, &e)
			err = fmt.Errorf("got %v %v, want %v", ft, &e, want)
		}
	}
	return err
}

// count counts messages until the connection ends.
func (c *crowd) count(r *bufio.Reader) {
	var buf []byte
	for {
		ft, body, err := wire.Read(r, buf, wire.MaxBody)
		if err != nil {
			return
		}
		if buf = body[:0]; ft == wirev1.FrameType_FRAME_TYPE_MESSAGE && c.got.Add(1) == c.goal.Load() {
			c.there <- struct{}{}
		}
	}
}

// want has await wait for so many more messages to each.
func (c *crowd) want(messages int) { c.goal.Store(c.got.Load() + int64(messages*len(c.conns))) }

func (c *crowd) await(ctx context.Context) error {
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	select {
	case <-c.there:
		return nil
	case <-late.C:
		return fmt.Errorf("%d of %d messages came", c.got.Load(), c.goal.Load())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *crowd) close() {
	for _, conn := range c.conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
	c.ended.Wait()
}
