package attack

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// conn is one connection of an attacker to the edge. One goroutine writes; listen reads.
type conn struct {
	net.Conn
	codes *Codes
	buf   []byte
}

// dialer connects from one of many addresses of loopback, none of which is an honest user's.
func dialer() *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 66, byte(1+rand.IntN(200)))}}
}

// raw connects and says nothing. Closed, it leaves nothing in the kernel: ports are few.
func (t *Target) raw(ctx context.Context) (net.Conn, error) {
	c, err := dialer().DialContext(ctx, "tcp", t.Edge)
	if err == nil {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	return c, err
}

// greet connects and says Hello, and does not wait for Welcome. The connection ends with ctx.
func (t *Target) greet(ctx context.Context, codes *Codes, hello *wirev1.Hello) (*conn, error) {
	c, err := t.raw(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return greetOn(c, codes, hello)
}

func greetOn(c net.Conn, codes *Codes, hello *wirev1.Hello) (*conn, error) {
	x := &conn{Conn: c, codes: codes}
	hello.Version, hello.HeartbeatMs = wire.Version, 600_000
	x.add(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	return x, x.flush()
}

// add adds a frame to what flush writes.
func (c *conn) add(t wirev1.FrameType, m proto.Message) {
	b, err := wire.Append(c.buf, t, m)
	if err != nil {
		panic(err) // frames are made here
	}
	c.buf = b
}

// body adds a frame of any body.
func (c *conn) body(t wirev1.FrameType, body []byte) {
	at := len(c.buf)
	c.buf = append(append(c.buf, 0, 0, 0, 0), body...)
	wire.PutHeader(c.buf[at:], len(body), t)
}

func (c *conn) flush() error {
	_, err := c.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}

func (c *conn) subscribe(s *wirev1.Subscribe) { c.add(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, s) }

// listen reads until the connection ends, and counts codes; each, if any, is shown every frame.
func (c *conn) listen(each func(t wirev1.FrameType, body []byte)) {
	r := bufio.NewReaderSize(c, 64<<10)
	var buf []byte
	for {
		t, body, err := wire.Read(r, buf, wire.MaxBody)
		if err != nil {
			return
		}
		buf = body[:cap(body)]
		c.count(t, body)
		if each != nil {
			each(t, body)
		}
	}
}

// count counts the code that a frame carries.
func (c *conn) count(t wirev1.FrameType, body []byte) {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		var m wirev1.Error
		c.decoded(t, body, &m)
		c.codes.Code(m.GetCode())
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED:
		var m wirev1.Unsubscribed
		c.decoded(t, body, &m)
		c.codes.Code(m.GetCode())
	case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		var m wirev1.GoAway
		c.decoded(t, body, &m)
		c.codes.Code(m.GetCode())
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		var m wirev1.Progress
		c.decoded(t, body, &m)
		c.codes.Code(m.GetCode())
	case wirev1.FrameType_FRAME_TYPE_CLAIM_STATE:
		var m wirev1.ClaimState
		c.decoded(t, body, &m)
		c.codes.Note(m.GetState().String())
	default:
		c.codes.Note(t.String()[len("FRAME_TYPE_"):])
	}
}

func (c *conn) decoded(t wirev1.FrameType, body []byte, into proto.Message) {
	if err := proto.Unmarshal(body, into); err != nil {
		c.codes.Note(fmt.Sprintf("a %v that can't be decoded", t))
	}
}
