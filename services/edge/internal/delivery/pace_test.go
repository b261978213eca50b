package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
)

// Those who are behind get so many messages in a millisecond; what is live is not held back by
// that, and nothing is left waiting.
func TestThoseBehindArePaced(t *testing.T) {
	const pace, messages = 100, 2000
	w := newWorld(t, Limits{ReplayPace: pace})
	w.h.replay.pace.Exhausted(w.h.now)
	if w.h.replay.pace.Spend(pace); w.h.Paced() {
		t.Fatal("nobody is behind, and the loop waits for the millisecond to be over")
	}
	w.h.replay.pace = replay.Pace{Most: pace}
	w.mesh.Append("room/1", payloads(0, messages)...)
	late, live := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	live.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk/1"})
	late.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
	got := int(w.h.Stats().Deliveries)
	for ms := 0; got < messages; ms++ {
		before := w.h.Stats().Deliveries
		for range 10 {
			w.settle()
			late.take()
		}
		n := int(w.h.Stats().Deliveries - before)
		if n > pace+replaySlice {
			t.Fatalf("%d messages in a millisecond", n)
		}
		if got += n; ms > 40*messages/pace {
			t.Fatalf("%d of %d messages in %d ms", got, messages, ms)
		}
		if n >= pace && got < messages && (!w.h.Paced() || w.h.Queued()) {
			t.Fatal("the loop does not sleep until the next millisecond")
		}
		w.now += int64(time.Millisecond)
		w.h.SetTime(w.now, wallStart)
	}
	w.settle()
	if w.h.Paced() || w.h.Queued() {
		t.Fatal("something waits for ever")
	}
}
