// Package peer is a client of an edge with one connection, for measurements that need few of them
// or what a swarm has not: TLS, requests, a life of their own.
package peer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Conn is a connection that one goroutine uses.
type Conn struct {
	net.Conn
	r          *bufio.Reader
	frame, buf []byte
}

// Dial connects to an edge and says Hello.
func Dial(ctx context.Context, addr, client string) (*Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return Greet(c, client)
}

// Greet says Hello on a connection, as a client with a name or none, and waits for Welcome.
func Greet(conn net.Conn, client string) (*Conn, error) {
	return GreetWith(conn, client, "")
}

// GreetWith is Greet of a client that shows a token, or none.
func GreetWith(conn net.Conn, client, token string) (_ *Conn, err error) {
	defer try.Catch(&err)
	c := &Conn{Conn: conn, r: bufio.NewReader(conn)}
	try.Do(c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: client, Token: token, HeartbeatMs: swarm.Never}))
	return c, c.Await(wirev1.FrameType_FRAME_TYPE_WELCOME, nil)
}

// Send sends a frame.
func (c *Conn) Send(t wirev1.FrameType, m proto.Message) (err error) {
	defer try.Catch(&err)
	c.frame = try.Get(wire.Append(c.frame[:0], t, m))
	try.Get(c.Write(c.frame))
	return nil
}

// Next reads a frame; its body is valid until the next.
func (c *Conn) Next() (wirev1.FrameType, []byte, error) {
	t, body, err := wire.Read(c.r, c.buf, wire.MaxBody)
	if cap(body) > cap(c.buf) {
		c.buf = body[:cap(body)]
	}
	return t, body, err
}

// Await reads the next frame, within a minute; it must be of a type, and is decoded into m, if any.
func (c *Conn) Await(want wirev1.FrameType, m proto.Message) (err error) {
	defer try.Catch(&err)
	try.Do(c.SetReadDeadline(time.Now().Add(time.Minute)))
	t, body := try.Get2(c.Next())
	try.Do(c.SetReadDeadline(time.Time{}))
	if t != want {
		var e wirev1.Error
		_ = proto.Unmarshal(body, &e) // it is only said
		return fmt.Errorf("%v %v where %v was due", t, &e, want)
	}
	if m == nil {
		return nil
	}
	return proto.Unmarshal(body, m)
}
