package delivery

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// What CONFLATE replaced counts as ACKed: it doesn't come to the session's next connection.
func TestWhatIsConflatedCountsAsACKed(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	sub := &wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: wirev1.Start_START_SESSION, Overflow: wirev1.Overflow_OVERFLOW_CONFLATE, ReceiveWindow: 1}
	c.subscribe(sub)
	w.mesh.Send("room/1", "a")
	c.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]")
	w.mesh.Send("room/1", "b", "c", "d")
	c.expect()
	c.ack("room/1", 1, false)
	c.expect("Progress room/1 2..3 CONFLATED", "room/1/4 subs=[1]")
	w.h.Gone(c.slot)
	w.settle()
	if s := w.mesh.Session("client:ann", "inbox"); s.Cursors["room/1"].GetFloor() != 3 {
		t.Fatalf("cursor %v", s.Cursors["room/1"])
	}
	c = w.session()
	c.subscribe(sub)
	c.expect("Welcome resumed", "Subscribed 1 head=4", "room/1/4 attempt=1 subs=[1]")
}

// Without a session what is un-ACKed when the connection ends is let go, and can be had again by
// position.
func TestUnackedWithoutASessionIsLetGo(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.mesh.Send("room/1", "a", "b")
	c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2")
	if n := w.h.Stats().Unacked; n != 2 {
		t.Fatalf("%d un-ACKed", n)
	}
	w.h.Gone(c.slot)
	w.settle()
	if n := w.h.Stats().Unacked; n != 0 || len(w.mesh.Letters) != 0 {
		t.Fatalf("%d un-ACKed, letters %v", n, w.mesh.Letters)
	}
	c = w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: wirev1.Start_START_AFTER_SEQ, Epoch: upstreamtest.BaseEpoch})
	c.expect("Subscribed 1 head=2", "room/1/1 subs=[1]", "room/1/2 subs=[1]")
}
