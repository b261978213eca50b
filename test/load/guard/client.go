package guard

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/webconn"
	"github.com/pushmesh/pushmesh/test/load/peer"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// atATime is how many clients connect at once.
const atATime = 16

// crowd is clients with a goroutine each, plain or with TLS, that count what they get together.
type crowd struct {
	conns []io.Closer
	got   atomic.Int64
	goal  atomic.Int64
	there chan struct{} // holds one where the goal was reached
	ended sync.WaitGroup
}

// connect opens n of them, subscribed to a topic; with TLS where cfg is given.
func connect(ctx context.Context, addr string, n int, cfg *tls.Config, topic string, token ...string) (*crowd, error) {
	return gather(n, func() (net.Conn, error) { return dial(ctx, addr, cfg) }, topic, token...)
}

// gather opens n of them, as open does.
func gather(n int, open func() (net.Conn, error), topic string, token ...string) (*crowd, error) {
	c := &crowd{conns: make([]io.Closer, n), there: make(chan struct{}, 1)}
	err := suite.Each(n, atATime, func(_, i int) (err error) {
		defer try.Catch(&err)
		conn := try.Get(open())
		c.conns[i] = conn
		p := try.Get(greet(conn, topic, token...))
		c.ended.Go(func() { c.count(p) })
		return nil
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func dial(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error) {
	if cfg == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
}

// dialWeb is dial for a WebSocket.
func dialWeb(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error) {
	conn, err := dial(ctx, addr, cfg)
	if err != nil {
		return nil, err
	}
	w, err := webconn.Upgrade(ctx, conn, "edge")
	if err != nil {
		return nil, err // a nil *Conn is no nil net.Conn
	}
	return w, nil
}

// greet says Hello, with a token where there is one, and subscribes.
func greet(conn net.Conn, topic string, token ...string) (c *peer.Conn, err error) {
	defer try.Catch(&err)
	c = try.Get(peer.GreetWith(conn, "", strings.Join(token, "")))
	try.Do(c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: topic}))
	return c, c.Await(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, nil)
}

// count counts messages until the connection ends.
func (c *crowd) count(p *peer.Conn) {
	for {
		t, _, err := p.Next()
		if err != nil {
			return
		}
		if t == wirev1.FrameType_FRAME_TYPE_MESSAGE {
			c.one()
		}
	}
}

// one notes that a client got a message.
func (c *crowd) one() {
	if c.got.Add(1) == c.goal.Load() {
		c.there <- struct{}{}
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
