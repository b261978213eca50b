package delivery

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func pingFrame(t tester) []byte {
	b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Bytes that drip in break the silence, but a frame that has begun ends in time or its connection
// does.
func TestDrippingFrameIsClosed(t *testing.T) {
	w := newWorld(t, Limits{FrameTimeout: 3 * time.Second})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 1000})
	quiet := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	frame := pingFrame(t)
	for n := range 3 { // each frame has the time anew
		c.bytes(frame[:1])
		w.pass(2 * time.Second)
		c.bytes(frame[1:])
		c.expect("Pong 7")
		if c.ended {
			t.Fatalf("closed at frame %d", n)
		}
		w.pass(2 * time.Second)
		c.bytes(frame)
		c.expect("Pong 7")
	}
	for _, b := range [][]byte{frame[:1], frame[1:3], frame[3:5]} {
		// bytes of the header, and behind it
		c.bytes(b)
		w.pass(time.Second - Tick)
	}
	c.expect()
	w.pass(4 * Tick)
	c.take()
	c.expect("Error IDLE_TIMEOUT ref=0")
	if n := w.h.Stats().Closes[wirev1.Code_CODE_IDLE_TIMEOUT]; n != 1 {
		t.Fatalf("%d were closed", n)
	}
	quiet.bytes(frame)
	quiet.expect("Pong 7")

	if n := w.h.conns.Mores.Taken(); n != 0 {
		t.Fatalf("%d parts of connections are left", n)
	}
}

// Who is not read for a while, because of its rate or because it takes no answers, is not held to
// the time.
func TestTimeNotReadIsNotTheClients(t *testing.T) {
	w := newWorld(t, Limits{FrameTimeout: 3 * time.Second})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	frame := pingFrame(t)
	c.bytes(frame[:3])
	for range 10 {
		w.pass(2 * time.Second)
		w.h.Unread(c.slot)
	}
	c.expect()
	c.bytes(frame[3:])
	c.expect("Pong 7")
}

// A record has the time of a frame, and begins it for the frame that goes on in it.
func TestDrippingRecordIsClosed(t *testing.T) {
	w := newWorld(t, Limits{FrameTimeout: 3 * time.Second})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	frame := pingFrame(t)
	for range 3 { // each record has the time anew, with a frame in it or without data
		w.h.RecordBegun(c.slot)
		w.pass(2 * time.Second)
		w.h.RecordWhole(c.slot)
		w.h.RecordBegun(c.slot)
		w.pass(2 * time.Second)
		c.bytes(frame)
		c.expect("Pong 7")
	}
	w.h.RecordBegun(c.slot)
	w.pass(2 * time.Second)
	c.bytes(frame[:3])
	w.pass(time.Second - Tick)
	c.expect()
	w.pass(4 * Tick)
	c.take()
	c.expect("Error IDLE_TIMEOUT ref=0")
}

// Torn anywhere, frames leave nothing behind, and nobody is closed who sends the rest in time.
func TestTornFramesLeaveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{FrameTimeout: 2 * time.Second})
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
		pings := rapid.IntRange(1, 20).Draw(t, "frames")
		var all []byte
		for range pings {
			all = append(all, pingFrame(t)...)
		}
		for len(all) > 0 {
			n := rapid.IntRange(1, len(all)).Draw(t, "bytes")
			c.bytes(all[:n])
			all = all[n:]
			w.pass(time.Duration(rapid.IntRange(0, 90).Draw(t, "ms")) * time.Millisecond)
		}
		w.pass(3 * time.Second)
		if c.take(); c.ended || len(c.got) != pings {
			t.Fatalf("%d of %d were answered", len(c.got), pings)
		}
		if n := w.h.conns.Mores.Taken(); n != 0 {
			t.Fatalf("%d parts of connections are left", n)
		}
	})
}
