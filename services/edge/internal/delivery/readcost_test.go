package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// missed has so many clients each subscribe to as many topics of their own, with a message each
// that they missed, and then one more with one such topic. It says how many milliseconds of virtual
// time pass until all of the clients, and the last one, have theirs, where reads are answered at
// once and --catchup-rate is 600.
func missed(t *testing.T, clients, topics int) (all, last int) {
	t.Helper()
	w := newWorld(t, Limits{ReplayPace: 600})
	var conns []*client
	for range clients + 1 {
		conns = append(conns, w.connect(&wirev1.Hello{}))
	}
	n, before := 0, w.h.Stats().Deliveries
	last = -1
	for i, c := range conns {
		if i == clients {
			topics = 1
		}
		for id := range topics {
			room := fmt.Sprintf("room/%d", n)
			w.mesh.Append(room, payloads(0, 1)...)
			c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(id + 1), Filter: room, Start: wirev1.Start_START_EARLIEST})
			n++
		}
	}
	for ms := range 200 {
		for range 4 {
			w.settle()
			for _, c := range conns[:clients] {
				c.take()
			}
			had := w.h.Stats().Deliveries
			if conns[clients].take(); last < 0 && w.h.Stats().Deliveries > had {
				last = ms
			}
		}
		if w.h.Stats().Deliveries-before >= uint64(n) && last >= 0 {
			return ms, last
		}
		w.now += int64(time.Millisecond)
		w.h.SetTime(w.now, wallStart)
	}
	t.Fatalf("%d of %d messages came in 200 ms", w.h.Stats().Deliveries-before, n)
	return 0, 0
}

func TestManyWithATopicEachCatchUpSoon(t *testing.T) {
	if ms, _ := missed(t, 600, 1); ms > 20 {
		t.Fatalf("it takes them %d ms", ms)
	}
}

// Beside connections with many topics each, but none with very many, who has missed one message
// waits for as long as their reads take.
func TestWhoMissedOneMessageWaitsForFewReads(t *testing.T) {
	if _, ms := missed(t, 10, 60); ms > 20 {
		t.Fatalf("it waits for %d ms", ms)
	}
}
