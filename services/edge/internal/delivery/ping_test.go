package delivery

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
)

func pong(h *Hub, sentAt uint64) []byte {
	var body [frames.MaxPong]byte
	return h.queues.ShortFrame(wirev1.FrameType_FRAME_TYPE_PONG, frames.AppendPong(body[:0], sentAt))
}

// Pongs are what the schema says, and lie beside each other untouched.
func TestPongIsEncodedAsTheSchemaSays(t *testing.T) {
	h, _ := crowd(t, 1, &wirev1.Subscribe{})
	var got, want [][]byte
	for i := range 2000 { // more than an arena
		at := uint64(i)
		if i == 1999 {
			at = math.MaxUint64
		}
		frame, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: at})
		if err != nil {
			t.Fatal(err)
		}
		got, want = append(got, pong(h, at)), append(want, frame)
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("Pong %d is %x, want %x", i, got[i], want[i])
		}
	}
}

func TestPingMakesNoGarbage(t *testing.T) {
	h, slots := crowd(t, 100, &wirev1.Subscribe{})
	f, ping := &flusher{h: h}, frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7, LastRttUs: 300})
	round := func() {
		for _, slot := range slots {
			h.Feed(slot, ping, 1)
		}
		f.flush()
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 { // the arena is one in six rounds
		t.Fatalf("%v allocations for %d Pings", n, len(slots))
	}
	if got := h.Stats().Frames; got < 100*100 {
		t.Fatalf("%d frames", got)
	}
}

func BenchmarkPing(b *testing.B) {
	h, slots := crowd(b, 1000, &wirev1.Subscribe{})
	f, ping := &flusher{h: h}, frameOf(b, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7, LastRttUs: 300})
	b.ReportAllocs()
	for b.Loop() {
		for _, slot := range slots {
			h.Feed(slot, ping, 1)
		}
		f.flush()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(slots)), "ns/Ping")
}

// A client that names the feature is asked for a sign of life, once for each silence; any frame is
// one, and whoever gives none is closed.
func TestSilentClientsAreAsked(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.hello(&wirev1.Hello{ClientId: "phone", HeartbeatMs: 10_000, Features: []string{"other", "ping"}})
	deaf := w.hello(&wirev1.Hello{ClientId: "old", HeartbeatMs: 10_000})
	c.expect("Welcome")
	deaf.expect("Welcome")
	for range 3 {
		w.pass(12400 * time.Millisecond)
		c.expect()
		w.pass(200 * time.Millisecond)
		c.expect("Ping")
		w.pass(10 * time.Second)
		c.expect() // once
		c.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
		deaf.send(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	}
	w.pass(26 * time.Second)
	c.expect("Ping", "Error IDLE_TIMEOUT ref=0")
	deaf.expect("Error IDLE_TIMEOUT ref=0")
}
