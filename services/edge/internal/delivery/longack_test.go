package delivery

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// ackInParts gives a frame as a loop does until it is done, and says in how many parts that was.
func ackInParts(t *testing.T, h *Hub, c *state.Conn, frame []byte, most int, between func()) (parts int) {
	t.Helper()
	for more := true; more; parts++ {
		before := int(c.Unacked)
		used, _ := h.Feed(c.Slot, frame, 64)
		if did := before - int(c.Unacked); did > most {
			t.Fatalf("%d messages were settled in one go", did)
		}
		more = used == 0
		if more {
			between()
		}
		if parts > 10_000 {
			t.Fatal("it never ends")
		}
	}
	return parts
}

// An Ack with very many entries is done in parts: a neighbour is heard in between, and no entry is
// done twice or left out.
func TestAckWithManyEntriesIsDoneInParts(t *testing.T) {
	const topics = 3000
	h, k, slot := durableSession(t, topics)
	other, _ := h.Open()
	h.Feed(other, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
	m := &wirev1.Ack{}
	for i := range topics {
		m.Entries = append(m.Entries, &wirev1.Ack_Entry{Topic: fmt.Sprintf("room/%d", i), Seq: 1})
	}
	c, pongs := h.conns.Get(slot), h.conns.Get(other).Out.Answers()
	parts := ackInParts(t, h, c, frameOf(t, wirev1.FrameType_FRAME_TYPE_ACK, m), ackLooks/entryLooks, func() {
		h.Feed(other, frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1}), 1)
		if now := h.conns.Get(other).Out.Answers(); now <= pongs {
			t.Fatal("a Ping is not answered")
		}
		pongs = h.conns.Get(other).Out.Answers()
	})
	if parts < topics*entryLooks/ackLooks || c.Unacked != 0 || h.Stats().Acks != topics || h.Stats().StaleAcks != 0 {
		t.Fatalf("%d parts, %d un-ACKed, %+v", parts, c.Unacked, h.Stats())
	}
	if c.AckAt != 0 || c.AckSerial != 0 {
		t.Fatal("the connection remembers an Ack that is done")
	}
	h.Gone(slot)
	for h.Work(4096) {
	}
	for i := range topics {
		if name := fmt.Sprintf("room/%d", i); k.floors[name] != 1 {
			t.Fatalf("the session stands at %d in %s", k.floors[name], name)
		}
	}
}

// deep is a connection with one topic and so many messages that it has not ACKed.
func deep(t *testing.T, n int) (h *Hub, c *state.Conn, send func(from, to int)) {
	t.Helper()
	mesh := &still{}
	h = newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, Limits: Limits{QueueMessages: 2 * n}})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ReceiveWindow: uint32(2 * n)}), 1)
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true}), 1)
	send = func(from, to int) {
		for seq := from; seq <= to; seq++ {
			h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, uint64(seq), "hello")}})
		}
		for h.Work(4096) {
		}
		(&flusher{h: h}).flush()
	}
	send(1, n)
	c = h.conns.Get(slot)
	if int(c.Unacked) != n {
		t.Fatalf("%d of %d messages are un-ACKed", c.Unacked, n)
	}
	return h, c, send
}

// An Ack through a deep window is done in parts, and covers what was sent when it came alone: not
// what is sent between its parts.
func TestAckThroughADeepWindowCoversWhatWasSent(t *testing.T) {
	const n, later = 5000, 7
	h, c, send := deep(t, n)
	next := n + 1
	frame := frameOf(t, wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 1 << 40, Through: true}}})
	parts := ackInParts(t, h, c, frame, ackLooks/ackedLooks+1, func() {
		if next <= n+later {
			send(next, next)
			next++
		}
	})
	if parts < n*ackedLooks/ackLooks || int(c.Unacked) != later || h.Stats().Acks != n {
		t.Fatalf("%d parts, %d un-ACKed, %d ACKed", parts, c.Unacked, h.Stats().Acks)
	}
	// a Nack came before: the next Ack through does not cover it
	c.Tracks.At(0).Win.Find(n + 1).Nacked = true
	ackInParts(t, h, c, frame, ackLooks, func() {})
	if c.Unacked != 1 || h.Stats().Acks != n+later-1 {
		t.Fatalf("%d un-ACKed, %d ACKed", c.Unacked, h.Stats().Acks)
	}
}

// Where everything is on its way again, each ACK takes one message out of a long queue: that counts
// as well.
func TestAckOfWhatIsOnItsWayAgainIsDoneInParts(t *testing.T) {
	const n = 3000
	h, c, _ := deep(t, n)
	h.SetTime(h.now+int64(h.topics.Policy(c.Tracks.At(0).Topic).AckTimeout)+int64(Tick), wallStart)
	c.Heard = h.ms
	for h.Tick(512) {
	}
	for h.Work(4096) {
	}
	if c.Out.Messages() != n {
		t.Fatalf("%d of %d messages go out again", c.Out.Messages(), n)
	}
	frame := frameOf(t, wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: n, Through: true}}})
	ackInParts(t, h, c, frame, ackLooks/ackedLooks+1, func() {})
	if c.Unacked != 0 || c.Out.Messages() != 0 {
		t.Fatalf("%d un-ACKed, %d messages go out again", c.Unacked, c.Out.Messages())
	}
}

// Whoever has very many memberships has each entry of an Ack count for those that it concerns: one
// if it names the subscription, all of them if it doesn't.
func TestEntriesOfAcksCountForMemberships(t *testing.T) {
	const members, entries = 1000, 100
	w := newWorld(t, Limits{Subscriptions: members})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	for i := range uint32(members) {
		c.subscribe(&wirev1.Subscribe{Id: i + 1, Filter: "room/1", Group: fmt.Sprint("g", i)})
	}
	if n := len(w.h.conns.Get(c.slot).Groups); n != members {
		t.Fatalf("%d memberships", n)
	}
	for name, tt := range map[string]struct {
		sub  uint32
		most int // entries in one go
	}{"none named": {0, 1 + ackLooks/members}, "named": {members, entries}} {
		ack := &wirev1.Ack{}
		for range entries {
			ack.Entries = append(ack.Entries, &wirev1.Ack_Entry{Topic: "room/1", Seq: 1, Sub: tt.sub})
		}
		frame := frameOf(t, wirev1.FrameType_FRAME_TYPE_ACK, ack)
		for used := 0; used == 0; {
			before := w.h.acks.serials
			used, _ = w.h.Feed(c.slot, frame, 64)
			if did := int(w.h.acks.serials - before); did > tt.most || used > 0 && name == "named" && did < entries {
				t.Fatalf("%s: %d entries in one go", name, did)
			}
		}
	}
	// However many there are, one is found by its numbers, in whatever order they go.
	conn := w.h.conns.Get(c.slot)
	for i := uint32(1); i <= members; i += 7 {
		n := conn.MemberByID(i)
		if n == nil || conn.MemberByRef(n.Ref) != n {
			t.Fatalf("membership %d is not found", i)
		}
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: i})
		w.settle()
		if conn.MemberByID(i) != nil || conn.MemberByRef(n.Ref) != nil {
			t.Fatalf("membership %d is found, and has ended", i)
		}
	}
	for i := range uint32(members) {
		if n := conn.MemberByID(i + 1); (n == nil) != (i%7 == 0) || n != nil && n.ID != i+1 {
			t.Fatalf("membership %d is %v", i+1, n)
		}
	}
}
