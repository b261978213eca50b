package delivery

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

func (w *world) session() *client {
	w.t.Helper()
	c := w.dial()
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "inbox", HeartbeatMs: 600_000})
	return c
}

func (c *client) subscribeSession(filter string) {
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: filter, Ack: true, Start: wirev1.Start_START_SESSION})
}

func TestSessionResumes(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "before")
	c := w.session()
	c.expect("Welcome")
	c.subscribeSession("room/1")
	c.expect("Subscribed 1 head=1")
	if s := w.mesh.Session("client:ann", "inbox"); s.Cursors["room/1"].GetFloor() != 1 || len(s.Filters) != 1 {
		t.Fatalf("the first position is not stored: %v", s)
	}
	w.mesh.Send("room/1", "a", "b", "c")
	c.expect("room/1/2 subs=[1]", "room/1/3 subs=[1]", "room/1/4 subs=[1]")
	c.ack("room/1", 3, false)
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.Send("room/1", "d")
	w.settle()

	c = w.session()
	c.expect("Welcome resumed")
	c.subscribeSession("room/1")
	c.expect("Subscribed 1 head=5", "room/1/2 attempt=1 subs=[1]", "room/1/4 attempt=1 subs=[1]", "room/1/5 subs=[1]")
	c.ack("room/1", 5, true)
	w.pass(300 * time.Millisecond)
	if s := w.mesh.Session("client:ann", "inbox"); s.Cursors["room/1"].GetFloor() != 5 {
		t.Fatalf("cursor %v", s.Cursors["room/1"])
	}
}

func TestSessionTellsWhatRetentionTook(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a", "b", "c", "d")
	c.take()
	c.ack("room/1", 2, false)
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.Retain("room/1", 4)
	c = w.session()
	c.subscribeSession("room/1")
	c.expect("Welcome resumed", "Subscribed 1 head=4 recovered=false missed=2", "room/1/4 attempt=1 subs=[1]")
}

func TestSessionOfAnotherEpoch(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a")
	c.ack("room/1", 1, false)
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.NewEpoch("room/1", 2000)
	w.mesh.Append("room/1", "new")
	c = w.session()
	c.subscribeSession("room/1")
	c.expect("Welcome resumed", "Subscribed 1 head=1 recovered=false missed=0", "room/1/1 subs=[1]")
}

func TestSessionTopicsThatAppearLater(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/+")
	c.expect("Welcome", "Subscribed 1 head=0")
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.Append("room/1", "while away")
	c = w.session()
	c.subscribeSession("room/+")
	c.expect("Welcome resumed", "Subscribed 1 head=0 room/1:1", "room/1/1 subs=[1]")
	w.mesh.Append("room/2", "unheard")
	w.mesh.Send("room/2", "heard")
	c.expect("room/2/1 subs=[1]", "room/2/2 subs=[1]")
}

func TestSessionTakenOver(t *testing.T) {
	w := newWorld(t, Limits{})
	a := w.session()
	a.subscribeSession("room/1")
	w.mesh.Send("room/1", "a", "b")
	a.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]", "room/1/2 subs=[1]")
	a.ack("room/1", 1, false)
	b := w.session()
	a.expect("Error SESSION_TAKEN_OVER ref=0")
	b.subscribeSession("room/1")
	b.expect("Welcome resumed", "Subscribed 1 head=2", "room/1/2 attempt=1 subs=[1]")
	w.h.Event(exchange.Detached{Conn: w.h.Handle(b.slot)})
	b.expect("Error SESSION_TAKEN_OVER ref=0")
}

func TestSessionDeadLetters(t *testing.T) {
	w := newWorld(t, Limits{})
	m := w.mesh.Append("room/1")
	_ = m
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "poison")
	c.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]")
	told := false
	listen := func() {
		c.take()
		for _, f := range c.got {
			told = told || strings.Contains(f.text(), "ATTEMPTS_EXHAUSTED")
		}
	}
	for attempts := 1; attempts < 20 && len(w.mesh.Letters) == 0; {
		w.pass(11 * time.Second) // a gap is named after 10 s
		listen()
		attempts += 2
		w.h.Gone(c.slot)
		w.settle()
		c = w.session()
		c.subscribeSession("room/1")
	}
	if len(w.mesh.Letters) != 1 || w.mesh.Letters[0].GetReason() != wirev1.Code_CODE_ATTEMPTS_EXHAUSTED || w.mesh.Letters[0].GetAttempts() != 16 {
		t.Fatalf("dead letters %v", w.mesh.Letters)
	}
	w.mesh.Send("room/1", "next")
	listen()
	if last := c.got[len(c.got)-1].text(); last != "room/1/2 subs=[1]" {
		t.Fatalf("got %s", last)
	}
	if !told {
		t.Fatal("no Progress named the message that was given up")
	}
}

func TestSessionExpiredIsDeadLettered(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	c.expect("Welcome", "Subscribed 1 head=0")
	m := w.mesh.Append("room/1", "late")
	m[0].ExpiresAt = 1
	w.mesh.Live(m...)
	w.pass(time.Second)
	if len(w.mesh.Letters) != 1 || w.mesh.Letters[0].GetReason() != wirev1.Code_CODE_EXPIRED || len(w.mesh.Letters[0].GetBody()) == 0 {
		t.Fatalf("dead letters %v", w.mesh.Letters)
	}
	if s := w.mesh.Session("client:ann", "inbox"); s.Cursors["room/1"].GetFloor() != 1 {
		t.Fatalf("cursor %v", s.Cursors["room/1"])
	}
}

func TestSessionUnsubscribed(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.expect("Welcome", "Subscribed 1 head=0", "Unsubscribed 1")
	if s := w.mesh.Session("client:ann", "inbox"); len(s.Filters) != 0 || len(s.Cursors) != 0 {
		t.Fatalf("the session keeps %v", s)
	}
}

func TestConnectionThatEndsWhileItAttaches(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Hold()
	c := w.session()
	w.h.Gone(c.slot)
	w.mesh.Release()
	w.settle()
	if s := w.mesh.Session("client:ann", "inbox"); s.Held {
		t.Fatal("the session is held by a connection that is gone")
	}
}

func TestDrain(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a")
	c.expect("Welcome", "Subscribed 1 head=0", "room/1/1 subs=[1]")
	done := 0
	w.h.Event(exchange.Drain{JitterMS: 10, DeadlineMS: 5000, Done: func() { done++ }})
	w.settle()
	c.expect("GoAway")
	w.mesh.Send("room/1", "not any more")
	c.ack("room/1", 1, false)
	w.pass(300 * time.Millisecond)
	c.expect()
	w.h.Drained()
	w.h.Drained()
	if done != 1 {
		t.Fatalf("done %d times", done)
	}
	if s := w.mesh.Session("client:ann", "inbox"); s.Held || s.Cursors["room/1"].GetFloor() != 1 {
		t.Fatalf("held %v, cursor %v", s.Held, s.Cursors["room/1"])
	}
	late := w.dial()
	late.expect("GoAway")
}

func TestCountAndDisconnect(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.connect(&wirev1.Hello{ClientId: "a"}), w.connect(&wirev1.Hello{ClientId: "b"})
	a.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	a.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/#"})
	b.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/#"})
	var counts []uint64
	w.h.Event(exchange.Count{Topics: []string{"room/1", "room/2", "talk"}, Reply: func(c []uint64) { counts = c }})
	w.settle()
	if len(counts) != 3 || counts[0] != 2 || counts[1] != 2 || counts[2] != 0 {
		t.Fatalf("counts %v", counts)
	}
	n := -1
	w.h.Event(exchange.Disconnect{ClientID: "a", Code: wirev1.Code_CODE_FORBIDDEN, Reply: func(c int) { n = c }})
	w.settle()
	a.expect("Subscribed 1 head=0", "Subscribed 2 head=0", "Error FORBIDDEN ref=0")
	b.expect("Subscribed 1 head=0")
	if n != 1 {
		t.Fatalf("disconnected %d", n)
	}
}

// A client that nobody vouches for is a user by its id, as its sessions are. One whose session is
// being attached is there already.
func TestDisconnectByUser(t *testing.T) {
	w := newWorld(t, Limits{})
	a := w.connect(&wirev1.Hello{ClientId: "a"})
	b := w.connect(&wirev1.Hello{ClientId: "b"})
	n := -1
	disconnect := func(user string) int {
		w.h.Event(exchange.Disconnect{User: user, Reason: "banned", Reply: func(c int) { n = c }})
		w.settle()
		return n
	}
	for _, nobody := range []string{"a", "client:", "client:c", "Client:a"} {
		if n := disconnect(nobody); n != 0 {
			t.Errorf("%q: %d are disconnected", nobody, n)
		}
	}
	if n := disconnect("client:a"); n != 1 {
		t.Errorf("%d are disconnected", n)
	}
	a.expect("Error CANCELLED ref=0")
	b.expect()

	w.mesh.Hold()
	w.dial().send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "c", Session: "inbox"})
	if n := disconnect("client:c"); n != 1 {
		t.Errorf("of those that wait for their session %d are disconnected", n)
	}
}

func TestNothingIsLostWhileTheFirstPositionIsStored(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "before")
	c := w.session()
	w.mesh.HoldSaved()
	c.subscribeSession("room/+")
	c.expect("Welcome")
	w.mesh.Send("room/1", "a")
	w.mesh.Send("room/2", "b")
	w.mesh.Live(upstreamtest.Encode("room/3", 0, 0, "too early"))
	c.expect()
	w.mesh.Release()
	c.expect("Subscribed 1 head=0 room/1:1", "room/1/2 subs=[1]", "room/2/1 subs=[1]")
	w.mesh.Send("room/1", "c")
	w.mesh.Live(upstreamtest.Encode("room/3", 0, 0, "now"))
	c.expect("room/1/3 subs=[1]", "room/3=now subs=[1]")
}

func TestSubscriptionWhosePositionIsNotStored(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	w.mesh.HoldSaved()
	c.subscribeSession("room/1")
	w.mesh.Send("room/1", "a")
	c.expect("Welcome")
	w.h.Event(exchange.Saved{Conn: w.h.Handle(c.slot), Ref: 1, Err: errors.New("the store is away")})
	c.expect("Error INTERNAL ref=1")
	w.mesh.Release()
	c.expect()
	if n := w.mesh.Wants("room/1"); n != 0 {
		t.Fatalf("%d joins are left", n)
	}
}

func TestUnsubscribedTopicOfAnotherFilterKeepsItsPlace(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.subscribeSession("room/1")
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
	w.mesh.Send("room/1", "a", "b")
	c.expect("Welcome", "Subscribed 1 head=0", "Subscribed 2 head=0", "room/1/1 subs=[1 2]", "room/1/2 subs=[1 2]")
	c.ack("room/1", 1, false)
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 2})
	w.mesh.Send("room/1", "c")
	c.expect("Unsubscribed 2", "room/1/3 subs=[1]")
	w.h.Gone(c.slot)
	w.settle()
	c = w.session()
	c.subscribeSession("room/1")
	c.expect("Welcome resumed", "Subscribed 1 head=3", "room/1/2 attempt=1 subs=[1]", "room/1/3 attempt=1 subs=[1]")
}

func TestNothingFollowsTheErrorThatCloses(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	w.mesh.Send("room/1", "queued")
	w.settle()
	w.h.Event(exchange.Detached{Conn: w.h.Handle(c.slot)})
	w.h.Event(exchange.Live{Messages: w.mesh.Append("room/1", "late")})
	w.settle()
	c.slow = false
	c.expect("Error SESSION_TAKEN_OVER ref=0")
}
