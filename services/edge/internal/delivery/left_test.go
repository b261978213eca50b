package delivery

import (
	"bytes"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Connections end with full queues, in the middle of a message and in the middle of a fan-out;
// their places are used again at once by others. Those that stay get every byte, in builds that
// scribble over what is freed too, and in the end nothing is left in use.
func TestNothingIsLeftOfConnectionsThatEnd(t *testing.T) {
	const conns, rounds = 60, 40
	h, slots := crowd(t, conns, &wirev1.Subscribe{Ack: true, Start: wirev1.Start_START_EARLIEST})
	s := newStream(t, rounds)
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ReceiveWindow: 1000})
	subscribe := frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
	stays := slots[0]
	var got []byte
	for round := range rounds {
		h.Event(s.events[round])
		h.Work(10) // the fan-out is under way
		for i, slot := range slots[1:] {
			switch (i + round) % 7 {
			case 0: // it has taken a part of what it is owed
				if h.Status(slot).Owes {
					h.Gather(slot, nil, 0)
					h.Wrote(slot, 9)
				}
			case 3:
				h.Gone(slot)
				for h.Work(1) {
				}
				freeOver(h)
				slots[i+1], _ = h.Open()
				h.Feed(slots[i+1], hello, 1)
				h.Feed(slots[i+1], subscribe, 1)
			}
		}
		for h.Work(1000) {
		}
		for h.Status(stays).Owes {
			n := 0
			for _, b := range h.Gather(stays, nil, 0) {
				got, n = append(got, b...), n+len(b)
			}
			h.Wrote(stays, n)
		}
	}
	if n := bytes.Count(got, []byte("hello, world")); n != rounds {
		t.Errorf("who stayed got %d of %d messages", n, rounds)
	}
	for _, slot := range slots {
		h.Gone(slot)
	}
	for h.Work(1000) {
	}
	freeOver(h)
	h.Dirty(nil)
	for what, n := range h.InUse() {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}
