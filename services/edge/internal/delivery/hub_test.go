package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

func TestLiveDelivery(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "old")
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=1")
	w.mesh.Send("room/1", "a", "b")
	c.expect("room/1/2", "room/1/3")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.expect("Unsubscribed 1")
	w.mesh.Send("room/1", "c")
	c.expect()
	if n := w.mesh.Wants("room/1"); n != 0 {
		t.Fatalf("%d joins are left", n)
	}
}

func TestPlainSubscriptionsShareOneMessage(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/+", Ack: true})
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
	c.expect("Subscribed 1 head=0", "Subscribed 2 head=0", "Subscribed 3 head=0")
	w.mesh.Send("room/1", "a")
	c.expect("room/1/1", "room/1/1 subs=[3]")
	w.mesh.Live(upstreamtest.Encode("talk", 0, 0, "nobody"))
	w.mesh.Live(upstreamtest.Encode("room/1", 0, 0, "x"))
	c.expect("room/1=x", "room/1=x subs=[3]")
	c.ack("room/1", 1, false)
	if got := w.h.Stats(); got.Unacked != 0 || got.Acks != 1 {
		t.Fatalf("un-ACKed %d, ACKs %d", got.Unacked, got.Acks)
	}
}

func TestHoleIsReadFromTheLog(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=0")
	w.mesh.Send("room/1", "a")
	w.mesh.Append("room/1", "lost", "lost")
	w.mesh.Send("room/1", "b")
	c.expect("room/1/1", "room/1/2", "room/1/3", "room/1/4")
	w.mesh.Send("room/1", "c")
	c.expect("room/1/5")
	if s := w.h.Stats(); s.Behind != 1 || s.Resumed != 1 || w.mesh.Reads != 1 {
		t.Fatalf("behind %d, resumed %d, reads %d", s.Behind, s.Resumed, w.mesh.Reads)
	}
}

func TestStarts(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "a", "b", "c", "d", "e")
	w.mesh.Retain("room/1", 2)
	sub := func(m *wirev1.Subscribe) *client {
		c := w.connect(&wirev1.Hello{})
		m.Id, m.Filter = 1, "room/1"
		c.subscribe(m)
		return c
	}
	sub(&wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}).
		expect("Subscribed 1 head=5", "room/1/2 subs=[1]", "room/1/3 subs=[1]", "room/1/4 subs=[1]", "room/1/5 subs=[1]")
	sub(&wirev1.Subscribe{Start: wirev1.Start_START_LAST_N, Seq: 2}).expect("Subscribed 1 head=5", "room/1/4 subs=[1]", "room/1/5 subs=[1]")
	sub(&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ, Seq: 4, Epoch: upstreamtest.BaseEpoch}).expect("Subscribed 1 head=5", "room/1/5 subs=[1]")
	sub(&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ, Seq: 0, Epoch: upstreamtest.BaseEpoch}).
		expect("Subscribed 1 head=5 recovered=false missed=1", "room/1/2 subs=[1]", "room/1/3 subs=[1]", "room/1/4 subs=[1]", "room/1/5 subs=[1]")
	sub(&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ, Seq: 5, Epoch: 9}).
		expect("Subscribed 1 head=5 recovered=false missed=1", "room/1/2 subs=[1]", "room/1/3 subs=[1]", "room/1/4 subs=[1]", "room/1/5 subs=[1]")
	// beyond the head: rewound
	sub(&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ, Seq: 9, Epoch: upstreamtest.BaseEpoch}).
		expect("Subscribed 1 head=5 recovered=false missed=1", "room/1/2 subs=[1]", "room/1/3 subs=[1]", "room/1/4 subs=[1]", "room/1/5 subs=[1]")
}

func TestWildcardPositions(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "a", "b")
	w.mesh.Append("room/2", "a")
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 7, Filter: "room/#", Start: wirev1.Start_START_AFTER_SEQ, Positions: []*wirev1.Position{
		{Topic: "room/1", Epoch: upstreamtest.BaseEpoch, Seq: 1},
	}})
	c.expect("Subscribed 7 head=0 room/1:2 room/2:1", "room/1/2 subs=[7]")
	w.mesh.Append("room/3", "hidden")
	w.mesh.Send("room/3", "seen")
	c.expect("room/3/1 subs=[7]", "room/3/2 subs=[7]")
}

func TestWildcardIsBounded(t *testing.T) {
	w := newWorld(t, Limits{WildcardTopics: 2})
	for i := range 3 {
		w.mesh.Append(fmt.Sprintf("room/%d", i), "a")
	}
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/#", Ack: true})
	c.expect("Error TOO_MANY_TOPICS ref=1")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/#"})
	c.expect("Subscribed 1 head=0")
	w.mesh.Send("room/1", "b")
	c.expect("room/1/2")
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "user/#", Ack: true})
	c.expect("Subscribed 2 head=0")
	for i := range 2 {
		w.mesh.Send(fmt.Sprintf("user/%d", i), "a")
		c.expect(fmt.Sprintf("user/%d/1", i))
	}
	w.mesh.Send("user/2", "a")
	c.expect("Unsubscribed 2")
}

func TestRequestsRefused(t *testing.T) {
	w := newWorld(t, Limits{Subscriptions: 2})
	c := w.connect(&wirev1.Hello{})
	for _, x := range []struct {
		m    *wirev1.Subscribe
		want string
	}{
		{&wirev1.Subscribe{Id: 1, Filter: "a//b"}, "BAD_TOPIC"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Where: "x"}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Where: strings.Repeat("true || ", 600) + "true"}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Where: "age < 5.0"}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Where: "true", Group: "g"}, "UNSUPPORTED"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", RankTopK: 1}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", NoEcho: true, Group: "g"}, "UNSUPPORTED"},
		{&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Overflow: wirev1.Overflow_OVERFLOW_DROP_OLDEST}, "UNSUPPORTED"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Start: wirev1.Start_START_SESSION}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Start: 77}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Start: -1}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Overflow: wirev1.Overflow_OVERFLOW_DISCONNECT + 1}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Overflow: -1}, "INVALID_ARGUMENT"},
		{&wirev1.Subscribe{Id: 1, Filter: "a", Positions: []*wirev1.Position{{Topic: "b"}}}, "INVALID_ARGUMENT"},
	} {
		c.subscribe(x.m)
		c.expect("Error " + x.want + " ref=1")
	}
	c.send(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: 5})
	c.expect("Error UNSUPPORTED ref=5")
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 9})
	c.expect("Error NOT_FOUND ref=9")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "a"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "b"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "b"})
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "c"})
	c.expect("Subscribed 1 head=0", "Error INVALID_ARGUMENT ref=1", "Subscribed 2 head=0", "Error TOO_MANY_SUBSCRIPTIONS ref=3")
	w.mesh.CloseStore(true)
	d := w.connect(&wirev1.Hello{})
	d.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	d.expect("Error UNAVAILABLE ref=1")
	d.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"}) // ephemeral: needs no store
	d.expect("Subscribed 1 head=0")
}

func TestAckedMessageIsNotSentAgain(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.mesh.Send("room/1", "a", "b", "c")
	c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2", "room/1/3")
	c.ack("room/1", 2, false)
	w.pass(2100 * time.Millisecond)
	c.expect("room/1/1 attempt=1", "room/1/3 attempt=1")
	c.ack("room/1", 3, true)
	w.pass(10 * time.Second)
	c.expect()
}

func TestUnackedMessageLeavesTheWindow(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 2})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.mesh.Send("room/1", "a", "b", "c", "d")
	c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2")
	c.ack("room/1", 2, false)
	c.expect("room/1/3")
	c.ack("room/1", 3, false)
	c.expect("room/1/4")
	c.ack("room/1", 4, false)
	for attempt := 1; attempt <= 2; attempt++ {
		w.pass(2100 * time.Millisecond)
		c.expect(fmt.Sprintf("room/1/1 attempt=%d", attempt))
	}
	w.pass(2100 * time.Millisecond)
	c.expect()
	w.mesh.Send("room/1", "e", "f")
	c.expect("room/1/5", "room/1/6")
	for range 4 {
		w.pass(2100 * time.Millisecond)
		c.take()
	}
	if n := len(c.got); n != 5 || c.got[n-1].text() != "Error ACK_TIMEOUT ref=0" {
		t.Fatalf("got %d frames", n)
	}
}

func TestNack(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.mesh.Send("room/1", "a", "b")
	c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2")
	c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: 1, DelayMs: 500})
	c.ack("room/1", 2, true) // does not cover what was Nacked
	w.pass(300 * time.Millisecond)
	c.expect()
	w.pass(300 * time.Millisecond)
	c.expect("room/1/1 attempt=1")
	c.ack("room/1", 1, true)
	w.pass(5 * time.Second)
	c.expect()
}

// A Nack of what the client does not have does no harm, whatever else it has.
func TestNackOfTheUnknown(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	nack := func(name string, seq uint64, sub uint32) {
		c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: name, Seq: seq, Sub: sub})
	}
	nack("room/1", 1, 0)
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	nack("room/1", 1, 0)
	w.mesh.Send("room/1", "a", "b", "c")
	c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2", "room/1/3")
	c.ack("room/1", 2, false)
	for _, seq := range []uint64{0, 2, 4, 1 << 60} { // none, ACKed, to come, never
		nack("room/1", seq, 0)
	}
	nack("room/1", 1, 9) // of another subscription
	nack("room/2", 1, 0)
	w.pass(300 * time.Millisecond)
	c.expect()
	if s := w.h.Stats(); s.Unacked != 2 || s.Nacks != 8 || s.Connections != 1 {
		t.Fatalf("%d un-ACKed, %d NACKs, %d connections", s.Unacked, s.Nacks, s.Connections)
	}
	nack("room/1", 3, 1)
	w.pass(300 * time.Millisecond)
	c.expect("room/1/3 attempt=1")
}

// A subscription that ends while a message of it is half written: the message comes whole, and
// means nothing to whatever has the place of its track then.
func TestUnsubscribedWhileAMessageIsHalfWritten(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	w.mesh.Send("room/1", "a", "b", "c")
	w.settle()
	var sent []byte
	for _, b := range w.h.Gather(c.slot, nil, 0) {
		sent = append(sent, b...)
	}
	c.in = append(c.in, sent[:len(sent)/2]...) // in the middle of the second
	w.h.Wrote(c.slot, len(sent)/2)
	w.settle()
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/2", Ack: true})
	w.mesh.Send("room/2", "x")
	w.settle()
	c.slow = false
	c.expect("room/1/1", "room/1/2", "Unsubscribed 1", "Subscribed 2 head=0", "room/2/1")
	if s := w.h.Stats(); s.Unacked != 1 {
		t.Fatalf("%d un-ACKed", s.Unacked)
	}
	c.ack("room/1", 2, true)
	c.ack("room/2", 1, true)
	w.pass(10 * time.Second)
	c.expect()
	if s := w.h.Stats(); s.Unacked != 0 || s.QueuedBytes != 0 {
		t.Fatalf("%d un-ACKed, %d bytes queued", s.Unacked, s.QueuedBytes)
	}
}

func TestFullQueueFallsBehindWithoutLoss(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 4})
	c := w.connect(&wirev1.Hello{})
	fast := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	fast.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=0")
	fast.expect("Subscribed 1 head=0")
	c.slow = true
	for i := range 10 {
		w.mesh.Send("room/1", "x")
		fast.expect(fmt.Sprintf("room/1/%d", i+1))
	}
	if s := w.h.Stats(); s.QueuedBytes > 100 {
		t.Fatalf("%d bytes are queued for a subscription that is behind", s.QueuedBytes)
	}
	c.slow = false
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("room/1/%d", i+1))
	}
	c.expect(want...)
}

func TestOverflows(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 2})
	sub := func(o wirev1.Overflow, filter string) *client {
		c := w.connect(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: filter, Overflow: o})
		c.expect("Subscribed 1 head=0")
		c.slow = true
		return c
	}
	drop := sub(wirev1.Overflow_OVERFLOW_DROP_OLDEST, "room/1")
	conflate := sub(wirev1.Overflow_OVERFLOW_CONFLATE, "room/1")
	disconnect := sub(wirev1.Overflow_OVERFLOW_DISCONNECT, "room/1")
	ephemeral := sub(wirev1.Overflow_OVERFLOW_DEFAULT, "talk")
	newest := sub(wirev1.Overflow_OVERFLOW_CONFLATE, "talk")
	for i := range 5 {
		w.mesh.Send("room/1", "x")
		w.mesh.Live(upstreamtest.Encode("talk", 0, 0, fmt.Sprint(i)))
		w.settle()
	}
	drop.slow, conflate.slow, disconnect.slow, ephemeral.slow, newest.slow = false, false, false, false, false
	drop.expect("Progress room/1 1..3 QUEUE_FULL", "room/1/4", "room/1/5")
	conflate.expect("room/1/1", "Progress room/1 2..4 CONFLATED", "room/1/5")
	disconnect.expect("Error SLOW_CONSUMER ref=0")
	ephemeral.expect("talk=3", "talk=4")
	newest.expect("talk=4")
	if s := w.h.Stats(); s.Drops[wirev1.Code_CODE_QUEUE_FULL] != 6 || s.Drops[wirev1.Code_CODE_CONFLATED] != 7 {
		t.Fatalf("drops %v", s.Drops)
	}
}

func TestExpiredAndRetained(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=0")
	m := w.mesh.Append("room/1", "a", "b", "c", "d", "e")
	m[1].ExpiresAt, m[2].ExpiresAt, m[4].ExpiresAt = 1, 1, 1
	w.mesh.Live(m...)
	c.expect("room/1/1", "Progress room/1 2..3 EXPIRED", "room/1/4")
	w.pass(11 * time.Second)
	c.expect("Progress room/1 5..5 EXPIRED")
	w.mesh.Append("room/1", "gone", "gone")
	w.mesh.Retain("room/1", 8)
	w.mesh.Send("room/1", "f")
	c.expect("Progress room/1 6..7 RETENTION", "room/1/8")
}

func TestNewEpoch(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	w.mesh.Send("room/1", "a", "b")
	c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2")
	w.mesh.NewEpoch("room/1", 2000)
	w.mesh.Append("room/1", "new")
	w.mesh.Send("room/1", "new")
	c.expect("Progress room/1 0..0 EPOCH_CHANGED", "room/1/1", "room/1/2")
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 2, Through: true, Epoch: upstreamtest.BaseEpoch}}})
	if s := w.h.Stats(); s.StaleAcks != 1 || s.Unacked != 2 {
		t.Fatalf("stale ACKs %d, un-ACKed %d", s.StaleAcks, s.Unacked)
	}
}

// A topic that nobody has told the client the epoch of, because it appeared after Subscribed, has
// it named ahead of what comes first: by it a position is void when the log begins anew. What goes
// out at once, from the log, as a gap or in a session: the harness checks each, in every test of
// this package.
func TestTheFirstEpochIsNamed(t *testing.T) {
	for name, sub := range map[string]*wirev1.Subscribe{
		"a wildcard": {Id: 1, Filter: "room/#"}, "its name": {Id: 1, Filter: "room/1"}, "a wildcard, ACKed": {Id: 1, Filter: "room/#", Ack: true},
	} {
		w := newWorld(t, Limits{})
		c := w.connect(&wirev1.Hello{})
		c.subscribe(sub)
		w.mesh.Send("room/1", "a", "b")
		c.expect("Subscribed 1 head=0", "room/1/1", "room/1/2")
		if c.epochs["room/1"] != upstreamtest.BaseEpoch {
			t.Errorf("%s: the epoch told is %d", name, c.epochs["room/1"])
		}
	}
}

func TestPublish(t *testing.T) {
	w := newWorld(t, Limits{PublishWindow: 2})
	c := w.connect(&wirev1.Hello{})
	pub := func(id uint32, name, payload string) {
		c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: name, Payload: []byte(payload)})
	}
	pub(1, "open/x", "hi")
	c.expect("Published 1")
	pub(1, "room/1", "hi")
	c.expect("Error FORBIDDEN ref=1")
	pub(1, "open/+", "hi")
	c.expect("Error BAD_TOPIC ref=1")
	pub(1, "open/x", string(make([]byte, 65)))
	c.expect("Error PAYLOAD_TOO_LARGE ref=1")
	pub(0, "room/1", "hi")
	c.expect()
	w.mesh.Hold()
	pub(1, "open/x", "a")
	pub(1, "open/x", "a")
	pub(0, "open/x", "b")
	pub(3, "open/x", "c")
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 5})
	c.expect("Error INVALID_ARGUMENT ref=1", "Error RATE_LIMITED ref=3", "Pong 5")
	w.mesh.Release()
	c.expect("Published 1")
	pub(3, "open/x", "c")
	c.expect("Published 3")
}

func TestHandshake(t *testing.T) {
	w := newWorld(t, Limits{})
	late := w.dial()
	w.pass(5100 * time.Millisecond)
	late.expect("Error HANDSHAKE_TIMEOUT ref=0")
	for _, hello := range []*wirev1.Hello{{Version: 2}, {Version: 1, Token: "t"}} {
		c := w.dial()
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
		c.expect("Error UNSUPPORTED ref=0")
	}
	quiet := w.connect(&wirev1.Hello{HeartbeatMs: 1})
	w.pass(2400 * time.Millisecond)
	quiet.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})
	quiet.expect("Pong 0")
	w.pass(2400 * time.Millisecond)
	quiet.expect()
	w.pass(200 * time.Millisecond)
	quiet.expect("Error IDLE_TIMEOUT ref=0")
	if s := w.h.Stats(); s.Connections != 0 || s.Closes[wirev1.Code_CODE_IDLE_TIMEOUT] != 1 {
		t.Fatalf("connections %d, closes %v", s.Connections, s.Closes)
	}
}

func TestStaleHandle(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	w.mesh.Hold()
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	w.h.Gone(c.slot)
	w.settle()
	d := w.connect(&wirev1.Hello{})
	if d.slot != c.slot || d.gen == c.gen {
		t.Fatalf("slot %d gen %d after slot %d gen %d", d.slot, d.gen, c.slot, c.gen)
	}
	w.mesh.Release()
	d.expect()
	if s := w.h.Stats(); s.StaleEvents != 1 || s.Subscriptions != 0 || w.mesh.Wants("room/1") != 0 {
		t.Fatalf("stale %d, subscriptions %d", s.StaleEvents, s.Subscriptions)
	}
}

// A topic whose position is named begins behind it, whatever the start says of the others; what
// can't be meant together is refused.
func TestPositionsCountWithEveryStart(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("room/1", "a", "b", "c")
	w.mesh.Append("room/2", "a", "b", "c")
	at := func(name string, seq uint64) *wirev1.Position {
		return &wirev1.Position{Topic: name, Epoch: upstreamtest.BaseEpoch, Seq: seq}
	}
	for _, c := range []struct {
		sub  *wirev1.Subscribe
		want []string
	}{
		{&wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}, []string{"room/1/3", "room/2/1", "room/2/2", "room/2/3"}},
		{&wirev1.Subscribe{Start: wirev1.Start_START_LAST_N, Seq: 2}, []string{"room/1/3", "room/2/2", "room/2/3"}},
		{&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ}, []string{"room/1/3"}},
		{&wirev1.Subscribe{}, []string{"room/1/3"}},
	} {
		cl := w.connect(&wirev1.Hello{})
		c.sub.Id, c.sub.Filter, c.sub.Positions = 1, "room/+", []*wirev1.Position{at("room/1", 2)}
		cl.subscribe(c.sub)
		got := cl.texts()[1:]
		slices.Sort(got)
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], " subs=[1]")
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.sub.GetStart(), got, c.want)
		}
	}
	for name, sub := range map[string]*wirev1.Subscribe{
		"a session's own":       {Start: wirev1.Start_START_SESSION, Positions: []*wirev1.Position{at("room/1", 2)}},
		"twice":                 {Positions: []*wirev1.Position{at("room/1", 2), at("room/1", 1)}},
		"seq beside positions":  {Start: wirev1.Start_START_AFTER_SEQ, Seq: 1, Positions: []*wirev1.Position{at("room/1", 2)}},
		"seq without a start":   {Seq: 1},
		"epoch without a start": {Epoch: 1},
		"seq of many topics":    {Start: wirev1.Start_START_AFTER_SEQ, Seq: 1},
		"epoch of many topics":  {Start: wirev1.Start_START_AFTER_SEQ, Epoch: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			cl := w.connect(&wirev1.Hello{Session: "s"})
			sub.Id, sub.Filter = 1, "room/+"
			cl.subscribe(sub)
			cl.expect("Error INVALID_ARGUMENT ref=1")
		})
	}
}
