package loop

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// patience with what comes at once on a machine that has nothing else to do. It says only that
// something never comes.
const patience = time.Minute

// patiently is the policy of a topic with all its time-outs out of reach of a machine that stands
// still for a while.
func patiently() func(topic string) *policy.Policy {
	all := policy.Builtin()
	for _, ns := range all {
		ns.Policy.AckTimeout = durationpb.New(time.Hour)
	}
	return policy.NewTable(all).For
}

// eventually waits until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.Tick(5 * time.Millisecond); !ok(); {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick:
		}
	}
}

type client struct {
	t testing.TB
	net.Conn
}

func dial(t testing.TB, l *Loop) *client {
	t.Helper()
	return dialWith(t, l, net.Dialer{})
}

// dialFrom connects from an address of this host.
func dialFrom(t testing.TB, l *Loop, from string) *client {
	t.Helper()
	return dialWith(t, l, net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}})
}

func dialWith(t testing.TB, l *Loop, d net.Dialer) *client {
	t.Helper()
	c, err := d.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c}
}

// Read waits for patience at most.
func (c *client) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func frameOf(t testing.TB, ft wirev1.FrameType, m proto.Message) []byte {
	t.Helper()
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (c *client) send(ft wirev1.FrameType, m proto.Message) { c.write(frameOf(c.t, ft, m)) }

func (c *client) write(b []byte) {
	c.t.Helper()
	err := c.SetWriteDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// arrived waits until the loop, whose turns are the test's, has something to read from the client:
// what a client has written is on its way for a moment.
func (c *client) arrived(l *Loop) {
	c.t.Helper()
	me := c.LocalAddr().(*net.TCPAddr).Port
	for slot := range l.peers.len() {
		p := l.peers.get(slot)
		if p == nil || !p.open() {
			continue
		}
		if at, err := unix.Getpeername(int(p.fd)); err != nil || at.(*unix.SockaddrInet4).Port != me {
			continue
		}
		fds := []unix.PollFd{{Fd: p.fd, Events: unix.POLLIN}}
		for deadline := time.Now().Add(patience); ; {
			if n, err := unix.Poll(fds, 1000); n > 0 && err == nil {
				return
			}
			if time.Now().After(deadline) {
				c.t.Fatal("what was written does not arrive")
			}
		}
	}
	c.t.Fatal("the loop has no such connection")
}

// read takes the next frame, which must be of type want.
func (c *client) read(want wirev1.FrameType, into proto.Message) {
	c.t.Helper()
	ft, body, err := c.frame()
	if err != nil {
		c.t.Fatalf("waiting for %v: %v", want, err)
	}
	if ft != want {
		var e wirev1.Error
		_ = proto.Unmarshal(body, &e)
		c.t.Fatalf("got %v (%v), want %v", ft, &e, want)
	}
	if err := proto.Unmarshal(body, into); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hello(m *wirev1.Hello) *wirev1.Welcome {
	c.t.Helper()
	m.Version = 1
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, m)
	var w wirev1.Welcome
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &w)
	return &w
}

func (c *client) subscribe(m *wirev1.Subscribe) *wirev1.Subscribed {
	c.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)
	var s wirev1.Subscribed
	c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &s)
	return &s
}

func (c *client) message() *wirev1.Message {
	c.t.Helper()
	var m wirev1.Message
	c.read(wirev1.FrameType_FRAME_TYPE_MESSAGE, &m)
	return &m
}

// frame takes the next frame. The word of a topic's epoch is passed over: the tests of the hub look
// at it.
func (c *client) frame() (wirev1.FrameType, []byte, error) {
	for {
		ft, body, err := wire.Read(c, nil, wire.MaxBody)
		if err != nil || ft != wirev1.FrameType_FRAME_TYPE_PROGRESS || !namesEpoch(body) {
			return ft, body, err
		}
	}
}

// codeOf an Error; 0: it is something else.
func codeOf(ft wirev1.FrameType, body []byte) wirev1.Code {
	var e wirev1.Error
	if ft != wirev1.FrameType_FRAME_TYPE_ERROR || proto.Unmarshal(body, &e) != nil {
		return 0
	}
	return e.GetCode()
}

// refusal is the Error that a connection is ended with; false where it was cut off instead, which
// happens on a machine that stands still for longer than a closing connection has for its last
// bytes.
func (c *client) refusal() (e *wirev1.Error, whole bool) {
	c.t.Helper()
	ft, body, err := c.frame()
	if errors.Is(err, unix.ECONNRESET) {
		return nil, false
	}
	if e = (&wirev1.Error{}); err != nil || ft != wirev1.FrameType_FRAME_TYPE_ERROR || proto.Unmarshal(body, e) != nil {
		c.t.Fatalf("got %v %q, %v", ft, body, err)
	}
	switch _, err := c.Read(make([]byte, 1)); {
	case errors.Is(err, unix.ECONNRESET):
		return nil, false
	case !errors.Is(err, io.EOF):
		c.t.Fatalf("after the Error: %v", err)
	}
	return e, true
}

// namesEpoch says that a Progress is the word of a topic's epoch.
func namesEpoch(progress []byte) bool {
	var p wirev1.Progress
	return proto.Unmarshal(progress, &p) == nil && p.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED
}
