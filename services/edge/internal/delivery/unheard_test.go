package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// An ACK that stands behind a request that waits is not late: its message is sent to nobody again,
// nor is it given to another member. Who stays silent then is late as ever.
func TestAnAckBehindARequestThatWaitsIsNotLate(t *testing.T) {
	w, d, p := permitted(t, map[string]time.Duration{"subscribe open/1": time.Hour})
	d.knows("g", "ann", "subscribe:mine/#", "subscribe:room/#", "group:g/room/#")
	c := w.hello(&wirev1.Hello{Token: "g", ClientId: "phone", HeartbeatMs: 600_000})
	c.expect("Welcome")
	c.subscribe(&wirev1.Subscribe{Id: 7, Filter: "room/2", Ack: true})
	c.subscribe(&wirev1.Subscribe{Id: 5, Filter: "room/1", Group: "g", Ack: true})
	c.expect("Subscribed 7 head=0", "Subscribed 5 head=0")
	all := w.mesh.Members()
	send := func() {
		w.mesh.Send("room/2", "a")
		w.mesh.Assign(all[len(all)-1], 0, w.log(1)...)
		w.settle()
		c.take()
		if len(c.got) != 2 {
			t.Fatalf("got %v", c.texts())
		}
		c.got = nil
	}
	send()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/1"})
	c.ack("room/1", 1, false)
	c.ack("room/2", 1, false)
	w.pass(9 * time.Second)
	c.take()
	c.expect()
	w.expectSettled("")
	p.answer(nil, c)
	c.expect(sub1)
	w.expectSettled("1 ACKED")
	if s := w.h.Stats(); s.Unacked != 0 || s.AckTimeouts != 0 {
		t.Fatalf("%d are un-ACKed, %d were late", s.Unacked, s.AckTimeouts)
	}
	send()
	p.allowed["subscribe open/2"] = time.Hour
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "open/2"})
	w.pass(time.Second)
	p.answer(nil, c)
	c.expect("Subscribed 2 head=0")
	w.pass(3 * time.Second)
	c.take()
	c.expect("room/2/2 attempt=1")
	w.expectSettled("2 TIMEOUT")
}
