package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/lag"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/departure"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
)

// What is due happens when it is, and not before: clients and operators count on each of these
// times, which docs/protocol.md and docs/operations.md name. The loop ticks every 100 ms, and each
// of these is due at a tick.
func TestWhatIsDueHappensInTime(t *testing.T) {
	closed := func(w *world, why wirev1.Code) func() bool {
		return func() bool { return w.h.Stats().Closes[why] == 1 }
	}
	quiet := func(w *world) *client { return w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: "ann"}) }
	unacked := func(w *world) *client {
		c := quiet(w)
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
		w.mesh.Send("room/1", "a")
		c.expect("Subscribed 1 head=0", "room/1/1")
		return c
	}
	came := func(c *client) func() bool {
		return func() bool { return len(c.texts()) > 0 }
	}
	for _, one := range []struct {
		what  string
		in    time.Duration
		begin func(w *world) (happened func() bool)
	}{
		{"Hello must have come", 5 * time.Second, func(w *world) func() bool { w.dial(); return closed(w, wirev1.Code_CODE_HANDSHAKE_TIMEOUT) }},
		{"a session must be attached", attachTimeout, func(w *world) func() bool {
			w.mesh.Hold()
			w.dial().send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Session: "s", HeartbeatMs: 600_000})
			return closed(w, wirev1.Code_CODE_UNAVAILABLE)
		}},
		{"a heartbeat must have come", 2500 * time.Millisecond, func(w *world) func() bool {
			w.connect(&wirev1.Hello{HeartbeatMs: 1000})
			return closed(w, wirev1.Code_CODE_IDLE_TIMEOUT)
		}},
		{"a frame must have come whole", 30 * time.Second, func(w *world) func() bool {
			quiet(w).bytes([]byte{0, 0})
			return closed(w, wirev1.Code_CODE_IDLE_TIMEOUT)
		}},
		{"a connection has for its last bytes", closeTimeout, func(w *world) func() bool {
			c := quiet(w)
			c.slow = true
			w.h.Event(exchange.Yield{Conn: w.h.Handle(c.slot)})
			w.settle()
			w.h.Dirty(nil)
			return func() bool { return w.h.Status(c.slot).Overdue }
		}},
		{"an ACK must have come", 2 * time.Second, func(w *world) func() bool { return came(unacked(w)) }},
		{"a message comes again that was refused", 700 * time.Millisecond, func(w *world) func() bool {
			c := unacked(w)
			c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: 1, DelayMs: 700})
			return came(c)
		}},
		{"a gap is named", gaps.Delay, func(w *world) func() bool {
			c := quiet(w)
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
			m := w.mesh.Append("room/1", "a")
			m[0].ExpiresAt = 1
			w.mesh.Live(m...)
			c.expect("Subscribed 1 head=0")
			return came(c)
		}},
		{"a session's position is saved", sessions.SaveDelay, func(w *world) func() bool {
			c := w.session()
			c.subscribeSession("room/1")
			w.mesh.Send("room/1", "a")
			c.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]")
			w.pass(time.Second)
			c.ack("room/1", 1, false)
			return func() bool { return w.mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor() == 1 }
		}},
		{"a read that failed is tried again", readAgain, func(w *world) func() bool {
			c := quiet(w)
			w.mesh.Append("room/1", "a")
			w.mesh.Away("room/1", true)
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
			c.expect("Subscribed 1 head=1")
			w.mesh.Away("room/1", false)
			return came(c)
		}},
		{"a member must have ACKed", 2 * time.Second, func(w *world) func() bool {
			c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000}, &wirev1.Subscribe{Ack: true})
			w.mesh.Assign(m, 0, w.log(1)...)
			c.expect("room/1/1 subs=[5]")
			return func() bool { return w.settledText() == "1 TIMEOUT" }
		}},
		{"what a member has no room for goes back", 2 * time.Second, func(w *world) func() bool {
			c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 1}, &wirev1.Subscribe{Ack: true})
			w.mesh.Assign(m, 0, w.log(2)...)
			c.expect("room/1/1 subs=[5]")
			return func() bool { return w.settledText() == "1 TIMEOUT, 2 UNSENT" }
		}},
		{"who was told to go has for ACKs", departure.Patience, func(w *world) func() bool {
			c := w.session() // a session: nothing of what times out is let go
			c.subscribeSession("late/1")
			w.mesh.Send("late/1", "a")
			c.expect("Welcome", "Subscribed 1 head=0", "late/1/1 subs=[1]")
			w.h.Event(exchange.Rebalance{Share: 1})
			c.expect("GoAway")
			return closed(w, wirev1.Code_CODE_DRAINING)
		}},
		{"the lag of those that wait is looked at", lag.Every, func(w *world) func() bool {
			c := quiet(w)
			w.mesh.Append("room/1", "a", "b")
			w.mesh.Away("room/1", true)
			w.h.Relieve() // looks for the first time
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
			return func() bool {
				w.h.Relieve()
				w.settle()
				return w.h.Stats().BehindNow == 1
			}
		}},
	} {
		w := newWorld(t, Limits{})
		happened := one.begin(w)
		w.pass(one.in - Tick)
		if happened() {
			t.Errorf("%s in %v, and %v before it is over", one.what, one.in, Tick)
			continue
		}
		if w.pass(Tick); !happened() {
			t.Errorf("%s in %v, and nothing happens then", one.what, one.in)
		}
	}
}

// A client that takes nothing of what it is owed has StuckTimeout, to the tick; whoever takes some
// has it anew.
func TestWhoTakesNothingHasItsTime(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk/1"})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	w.say(0)
	it := sendq.AnswerOf([]byte("x"))
	w.h.push(w.h.conns.Get(c.slot), &it)
	for taken := range uint64(2) {
		w.h.Stalled(c.slot, Held{Memory: 100, Taken: taken})
		w.pass(2*time.Minute - Tick)
		if w.h.Stalled(c.slot, Held{Memory: 100, Taken: taken}); w.h.Stats().StallCloses != 0 {
			t.Fatal("it is closed before its time")
		}
	}
	w.pass(Tick)
	if w.h.Stalled(c.slot, Held{Memory: 100, Taken: 1}); w.h.Stats().StallCloses != 1 {
		t.Fatal("it is not closed in time")
	}
}
