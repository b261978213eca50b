package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/report"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// tell has the world's hub tell of kinds.
func (w *world) tell(kinds ...events.Kind) *eventring.Ring {
	r := eventring.New(func() {})
	r.Open()
	w.h.rooms.report = report.New(w.h.port(), r, nil)
	w.h.Event(exchange.EventKinds{Kinds: events.Of(kinds...)})
	return r
}

// expectTold takes what was told, and compares it.
func expectTold(t *testing.T, r *eventring.Ring, want ...string) {
	t.Helper()
	var got []string
	for e, ok := r.Take(); ok; e, ok = r.Take() {
		text := fmt.Sprint(e.Kind, " ", e.ClientID)
		for _, s := range []string{e.User, e.Session, e.Name, e.Group, e.Reason} {
			if s != "" {
				text += " " + s
			}
		}
		if e.Seq != 0 {
			text += fmt.Sprint(" ", e.Seq)
		}
		if e.Code != 0 {
			text += " " + strings.TrimPrefix(wirev1.Code(e.Code).String(), "CODE_")
		}
		if e.Flag {
			text += " flag"
		}
		if got = append(got, text); e.Conn == 0 || e.At == 0 {
			t.Errorf("%s: %+v", text, e)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("told\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestTheLifeOfAConnectionIsTold(t *testing.T) {
	w := newWorld(t, Limits{})
	r := w.tell(events.All()...)
	c := w.connect(&wirev1.Hello{ClientId: "ann-1", Session: "phone"})
	expectTold(t, r, "connect ann-1 client:ann-1 phone")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+/chat", Ack: true})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room//"}) // refused
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "room/1", Group: "g"})
	expectTold(t, r, "subscribe ann-1 client:ann-1 phone room/+/chat flag", "subscribe ann-1 client:ann-1 phone room/1 g")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 3})
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	expectTold(t, r, "unsubscribe ann-1 client:ann-1 phone room/1 g", "unsubscribe ann-1 client:ann-1 phone room/+/chat")
	c.subscribe(&wirev1.Subscribe{Id: 4, Filter: "room/2"})
	expectTold(t, r, "subscribe ann-1 client:ann-1 phone room/2")
	w.h.Gone(c.slot)
	w.settle()
	expectTold(t, r, "disconnect ann-1 client:ann-1 phone")
}

func TestWhyAConnectionEndedIsTold(t *testing.T) {
	w := newWorld(t, Limits{})
	r := w.tell(events.Disconnect)
	w.connect(&wirev1.Hello{ClientId: "broken"}).bytes([]byte{0, 0, 1, 0x7f, 0})
	expectTold(t, r, "disconnect broken the frame's type is not one that a client sends UNKNOWN_FRAME")
	w.connect(&wirev1.Hello{ClientId: "told"})
	w.h.Event(exchange.Disconnect{ClientID: "told", Code: wirev1.Code_CODE_FORBIDDEN, Reason: "out", Reply: func(int) {}})
	w.settle()
	expectTold(t, r, "disconnect told out FORBIDDEN")
	quiet := w.connect(&wirev1.Hello{ClientId: "quiet", HeartbeatMs: 1000})
	w.pass(3 * time.Second)
	quiet.take()
	expectTold(t, r, "disconnect quiet nothing was heard for 2.5 heartbeats IDLE_TIMEOUT")
	never := w.dial() // not connected: not told
	w.h.Gone(never.slot)
	w.connect(&wirev1.Hello{ClientId: "last"})
	w.h.Event(exchange.Drain{DeadlineMS: 100, Done: func() {}})
	w.pass(3 * time.Second)
	expectTold(t, r, "disconnect last the edge is stopping DRAINING")
}

// ACKs are told for namespaces that ask for it, by their own and by group subscriptions, and never
// for events themselves.
func TestDeliveriesAreToldWhereAskedFor(t *testing.T) {
	w := newWorld(t, Limits{})
	w.table = policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true, DeliveredEvents: true}},
		{Prefix: "$events", Policy: &pushmeshv1.Policy{Durable: true, DeliveredEvents: true}},
	})
	r := w.tell(events.Delivered)
	c := w.connect(&wirev1.Hello{ClientId: "a"})
	for i, filter := range []string{"room/1", "user/1", "$events/connect"} {
		c.subscribe(&wirev1.Subscribe{Id: uint32(i + 1), Filter: filter, Ack: true})
		w.mesh.Send(filter, "x", "y", "z")
		w.settle()
		c.take()
		c.ack(filter, 1, false)
		c.ack(filter, 3, true)
		c.ack(filter, 3, true) // nothing is left
	}
	expectTold(t, r, "delivered a room/1 1", "delivered a room/1 2", "delivered a room/1 3")

	m, member := w.member(&wirev1.Hello{ClientId: "b"}, &wirev1.Subscribe{Ack: true})
	w.mesh.Assign(member, 0, w.mesh.Append("room/1", "v")...)
	w.settle()
	m.take()
	m.ack("room/1", 4, false)
	expectTold(t, r, "delivered b room/1 g 4")
}

func TestNobodyListensNothingIsTold(t *testing.T) {
	w := newWorld(t, Limits{})
	r := w.tell()
	w.h.Gone(w.connect(&wirev1.Hello{}).slot)
	w.settle()
	w.h.Event(exchange.EventKinds{Kinds: events.Of(events.Connect)})
	c := w.connect(&wirev1.Hello{ClientId: "x"})
	w.h.Event(exchange.EventKinds{})
	w.h.Gone(c.slot)
	w.settle()
	expectTold(t, r, "connect x")
}

// Telling of 15,000 connections that end together allocates nothing and goes on without whoever
// takes it.
func TestTellingAllocatesNothing(t *testing.T) {
	const n = 15_000
	h, slots := crowd(t, n, &wirev1.Subscribe{})
	r := eventring.New(func() {})
	r.Open()
	h.rooms.report = report.New(h.port(), r, nil)
	h.Event(exchange.EventKinds{Kinds: events.Of(events.All()...)})
	at := 0
	allocs := testing.AllocsPerRun(n-1, func() {
		c := h.conns.Get(slots[at])
		h.rooms.report.Connected(h.handle(c), true)
		h.rooms.report.Subscribed(h.handle(c), "room/1", "", true)
		h.rooms.report.Unsubscribed(h.handle(c), "room/1", "", wirev1.Code_CODE_OK, "")
		h.rooms.report.Disconnected(h.handle(c), wirev1.Code_CODE_DRAINING, "the edge is stopping")
		at++
	})
	if allocs != 0 {
		t.Errorf("%v allocations for four events", allocs)
	}
	took := 0
	for _, ok := r.Take(); ok; _, ok = r.Take() {
		took++
	}
	lost := uint64(0)
	for _, k := range events.All() {
		lost += r.Lost(k)
	}
	if uint64(took)+lost != 4*n || lost == 0 {
		t.Errorf("%d told and %d lost of %d", took, lost, 4*n)
	}
}

func TestConnectionsHaveIDsOfTheirOwn(t *testing.T) {
	h, slots := crowd(t, 2000, &wirev1.Subscribe{})
	seen := map[uint64]bool{}
	for _, slot := range slots {
		seen[h.connID(h.conns.Get(slot))] = true
		h.Gone(slot)
		for h.Work(1000) {
		}
		freeOver(h)
	}
	for range slots {
		slot, _ := h.Open()
		seen[h.connID(h.conns.Get(slot))] = true
	}
	if len(seen) != 2*len(slots) || seen[0] {
		t.Errorf("%d ids for %d connections", len(seen), 2*len(slots))
	}
}
