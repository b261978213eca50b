// Package wireclient speaks the subscriber protocol frame by frame, so that tests can say exactly
// what is sent and see exactly what comes. It hides nothing and recovers nothing but a Subscribe
// that was refused for the moment: the SDK is in the client module.
package wireclient

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Patience is how long a client waits for a frame that must come; a busy machine is no failure.
const Patience = 2 * time.Minute

// heartbeat that a client promises which names none, in milliseconds: the longest there is, for it
// sends no Ping by itself.
const heartbeat = 600_000

// Client is one connection. Its methods fail the test instead of returning errors.
type Client struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

// Dial connects without saying anything.
func Dial(t testing.TB, addr string) *Client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{t: t, conn: conn, r: bufio.NewReader(conn)}
	t.Cleanup(c.Close)
	return c
}

// Connect connects and says Hello; it returns the Welcome. A client that names no heartbeat may be
// silent for as long as any test lasts.
func Connect(t testing.TB, addr string, hello *wirev1.Hello) (*Client, *wirev1.Welcome) {
	t.Helper()
	c := Dial(t, addr)
	hello.Version, hello.HeartbeatMs = wire.Version, cmp.Or(hello.GetHeartbeatMs(), heartbeat)
	c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	return c, Expect(c, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
}

// Close closes the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Raw writes bytes as they are.
func (c *Client) Raw(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// Send writes one frame.
func (c *Client) Send(ft wirev1.FrameType, m proto.Message) {
	c.t.Helper()
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Raw(b)
}

// Next reads one frame, waiting at most d. The word of a topic's epoch is passed over.
func (c *Client) Next(d time.Duration) (wirev1.FrameType, []byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, nil, err
	}
	for {
		ft, body, err := wire.Read(c.r, nil, wire.MaxBody)
		var p wirev1.Progress
		if err != nil || ft != wirev1.FrameType_FRAME_TYPE_PROGRESS || proto.Unmarshal(body, &p) != nil || p.GetCode() != wirev1.Code_CODE_EPOCH_CHANGED {
			return ft, body, err
		}
	}
}

// Frame decodes a frame's body by its type.
func Frame(ft wirev1.FrameType, body []byte) (proto.Message, error) {
	var m proto.Message
	switch ft {
	case wirev1.FrameType_FRAME_TYPE_WELCOME:
		m = &wirev1.Welcome{}
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
		m = &wirev1.Subscribed{}
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED:
		m = &wirev1.Unsubscribed{}
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		m = &wirev1.Message{}
	case wirev1.FrameType_FRAME_TYPE_PONG:
		m = &wirev1.Pong{}
	case wirev1.FrameType_FRAME_TYPE_PUBLISHED:
		m = &wirev1.Published{}
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		m = &wirev1.Error{}
	case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		m = &wirev1.GoAway{}
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		m = &wirev1.Progress{}
	case wirev1.FrameType_FRAME_TYPE_CLAIM_STATE:
		m = &wirev1.ClaimState{}
	case wirev1.FrameType_FRAME_TYPE_PRESENCE:
		m = &wirev1.Presence{}
	case wirev1.FrameType_FRAME_TYPE_STATED:
		m = &wirev1.Stated{}
	case wirev1.FrameType_FRAME_TYPE_REFRESHED:
		m = &wirev1.Refreshed{}
	default:
		return nil, fmt.Errorf("frame type %v from an edge", ft)
	}
	return m, proto.Unmarshal(body, m)
}

// Expect reads frames until one of type ft comes and decodes it into into. Progress and Pong frames
// before it are passed over; any other frame fails the test.
func Expect[M proto.Message](c *Client, ft wirev1.FrameType, into M) M {
	c.t.Helper()
	c.either(ft, into, nil)
	return into
}

// either is Expect for a frame that may be refused: it reports whether one of type ft came, and not
// an Error. Without refused, an Error fails the test too.
func (c *Client) either(ft wirev1.FrameType, into proto.Message, refused *wirev1.Error) bool {
	c.t.Helper()
	for {
		got, body, err := c.Next(Patience)
		if err != nil {
			c.t.Fatalf("waiting for %v: %v", ft, err)
		}
		m, err := Frame(got, body)
		if err != nil {
			c.t.Fatal(err)
		}
		switch {
		case got == ft:
			proto.Merge(into, m)
			return true
		case got == wirev1.FrameType_FRAME_TYPE_ERROR && refused != nil:
			proto.Merge(refused, m)
			return false
		case got == wirev1.FrameType_FRAME_TYPE_PROGRESS, got == wirev1.FrameType_FRAME_TYPE_PONG:
		default:
			c.t.Fatalf("waiting for %v, got %v %v", ft, got, m)
		}
	}
}

// Subscribe subscribes and waits for the answer. Where that is to come back after a while (the
// tiers of a mesh may have lost sight of each other while the machine stood still), it does, as
// clients do.
func (c *Client) Subscribe(s *wirev1.Subscribe) *wirev1.Subscribed {
	c.t.Helper()
	for deadline := time.Now().Add(Patience); ; {
		c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, s)
		subscribed, refused := &wirev1.Subscribed{}, &wirev1.Error{}
		if c.either(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, subscribed, refused) {
			return subscribed
		}
		after := time.Duration(refused.GetRetryAfterMs()) * time.Millisecond
		if refused.GetRef() != s.GetId() || after == 0 || time.Now().Add(after).After(deadline) {
			c.t.Fatalf("waiting for %v, got %v", wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, refused)
		}
		<-time.After(after)
	}
}

// Message waits for the next message.
func (c *Client) Message() *wirev1.Message {
	c.t.Helper()
	return Expect(c, wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{})
}

// Error waits for an Error frame.
func (c *Client) Error() *wirev1.Error {
	c.t.Helper()
	return Expect(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{})
}

// Ack ACKs one message.
func (c *Client) Ack(m *wirev1.Message, epoch uint64) {
	c.t.Helper()
	c.Send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: m.GetTopic(), Seq: m.GetSeq(), Epoch: epoch}}})
}

// Closed waits until the edge has closed the connection; frames that come before are passed over.
func (c *Client) Closed() {
	c.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		if _, _, err := c.Next(time.Until(deadline)); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				c.t.Fatal("the edge did not close the connection")
			}
			return
		}
	}
}
