package loop

import (
	"bytes"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// paced is a loop with rates, with time and ticks in the test's hands, and two clients.
func paced(t *testing.T, r Rates) (l *Loop, fast, neighbour *client, pass func(time.Duration)) {
	t.Helper()
	l, _ = byHand(t, poll.ModeWrite)
	both := subscribed(t, l, 2)
	// Shares are given at every look: it is rates that are measured.
	n := uint16(1)
	l.periodAt = func(int64) uint16 { n++; return n }
	l.cfg.Rates = r
	return l, both[0], both[1], func(d time.Duration) {
		passes(l, d)
		for l.turn() || l.off.any() {
			l.release()
		}
	}
}

var ping = &wirev1.Ping{SentAt: 1}

// Who sends too many frames is read no faster than it may be, while its neighbour is as ever, and
// is closed once it has done so for too long.
func TestFramesOfAClientHaveARate(t *testing.T) {
	l, fast, neighbour, pass := paced(t, Rates{Frames: 100, Patience: 10 * time.Second})
	fast.write(bytes.Repeat(frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, ping), 3000))
	fast.arrived(l)
	before, sent := l.hub.Frames(), uint64(0)
	pass(0)
	for range 50 {
		pass(100 * time.Millisecond)
		neighbour.send(wirev1.FrameType_FRAME_TYPE_PING, ping)
		neighbour.arrived(l)
		sent++
		pass(0)
		neighbour.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	// A second's worth at once, then what five seconds allow, and what is handled at a time.
	if n := l.hub.Frames() - before - sent; n < 500 || n > 600+2*feedBudget {
		t.Fatalf("%d frames in five seconds", n)
	}
	if l.stats.Paced == 0 {
		t.Fatal("not counted")
	}
	for range 70 {
		pass(100 * time.Millisecond)
	}
	if n := l.hub.Stats().Closes[wirev1.Code_CODE_RATE_LIMITED]; n != 1 || l.hub.Stats().Connections == 0 {
		t.Fatalf("%d were closed", n)
	}
	var last wirev1.Code
	for last == 0 {
		ft, body, err := fast.frame()
		if err != nil {
			t.Fatal(err)
		}
		last = codeOf(ft, body)
	}
	if last != wirev1.Code_CODE_RATE_LIMITED {
		t.Fatalf("closed for %v", last)
	}
}

// A long frame comes as slowly as it may, and whole: neither the time for frames nor silence counts
// meanwhile.
func TestBytesOfAClientHaveARate(t *testing.T) {
	l, fast, _, pass := paced(t, Rates{Bytes: 16 << 10, Patience: time.Hour})
	const size = 1 << 20 // a minute's worth
	long := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(long, size, 0xf0) // of a type that may be skipped
	wrote := make(chan error, 1)
	go func() {
		_, err := fast.Write(long)
		wrote <- err
	}()
	frames, began := l.hub.Frames(), l.stats.ReadBytes
	took := time.Duration(0)
	for deadline := time.Now().Add(patience); l.hub.Frames() == frames; took += 100 * time.Millisecond {
		if l.stats.ReadBytes-began < uint64(len(long)) {
			fast.arrived(l)
		}
		pass(100 * time.Millisecond)
		if time.Now().After(deadline) || l.hub.Stats().Closes != (counters.ByCode{}) {
			t.Fatalf("closed, or never whole: %v", l.hub.Stats().Closes)
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if took < 55*time.Second {
		t.Fatalf("read within %v", took)
	}
}

// Who pauses is not closed, however often it has been too fast.
func TestWhoPausesIsNotClosed(t *testing.T) {
	l, fast, _, pass := paced(t, Rates{Frames: 100, Patience: 3 * time.Second})
	burst := bytes.Repeat(frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, ping), 200)
	for range 5 {
		fast.write(burst)
		fast.arrived(l)
		for range 40 { // two seconds for what is above, and two for the bucket
			pass(100 * time.Millisecond)
		}
		for range 200 {
			fast.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
		}
	}
	if n := l.hub.Stats().Connections; n != 2 || l.stats.Paced == 0 {
		t.Fatalf("%d are in, put off %d times", n, l.stats.Paced)
	}
}
