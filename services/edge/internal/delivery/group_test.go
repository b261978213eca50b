package delivery

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// member connects a member of group g at room/1, with ids from 1 on.
func (w *world) member(hello *wirev1.Hello, sub *wirev1.Subscribe) (*client, upstreamtest.Member) {
	w.t.Helper()
	c := w.connect(hello)
	sub.Id, sub.Group, sub.Filter = 5, "g", "room/1"
	c.subscribe(sub)
	c.expect("Subscribed 5 head=0")
	all := w.mesh.Members()
	return c, all[len(all)-1]
}

func (w *world) settledText() string {
	w.settle()
	var out []string
	for _, s := range w.mesh.Settled() {
		text := fmt.Sprint(s.Message.Seq, " ", strings.TrimPrefix(s.How.String(), "HOW_"))
		if s.DelayMS > 0 {
			text += fmt.Sprint(" ", s.DelayMS)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (w *world) expectSettled(want string) {
	w.t.Helper()
	if got := w.settledText(); got != want {
		w.t.Fatalf("settled %q, want %q", got, want)
	}
}

func (w *world) log(n int) []*exchange.Message {
	return w.mesh.Append("room/1", strings.Split(strings.Repeat("x", n), "")...)
}

func TestAMemberGetsWhatIsAssignedAlone(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true, GroupKey: "header:k"})
	if m.Key != "header:k" || m.Window != 256 || w.mesh.Wants("room/1") != 0 {
		t.Fatalf("%+v", m)
	}
	c.subscribe(&wirev1.Subscribe{Id: 6, Filter: "room/1"})
	c.expect("Subscribed 6 head=0")
	msgs := w.mesh.Send("room/1", "a", "b")
	c.expect("room/1/1", "room/1/2")
	w.mesh.Assign(m, 0, msgs[1])
	c.expect("room/1/2 subs=[5]")
	c.ack("room/1", 2, false)
	w.expectSettled("2 ACKED")
	c.ack("room/1", 2, false)
	w.expectSettled("")
	w.mesh.Assign(m, 3, msgs[0])
	c.expect("room/1/1 attempt=3 subs=[5]")
	c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: 1, DelayMs: 70, Sub: 5})
	w.expectSettled("1 NACKED 70")
	w.mesh.Assign(m, 0, upstreamtest.Encode("talk", 0, 0, "hi"))
	c.expect("talk=hi subs=[5]")
	if s := w.h.Stats(); s.Unacked != 0 || s.StaleAcks != 1 {
		t.Errorf("%+v", s)
	}
}

func TestThroughCoversWhatWasSentToTheMember(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true})
	msgs := w.log(9)
	w.mesh.Assign(m, 0, msgs[1], msgs[3], msgs[5], msgs[8])
	c.expect("room/1/2 subs=[5]", "room/1/4 subs=[5]", "room/1/6 subs=[5]", "room/1/9 subs=[5]")
	c.send(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: 4})
	c.ack("room/1", 7, true)
	w.expectSettled("4 NACKED, 2 ACKED, 6 ACKED")
	c.ack("room/2", 9, true)
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 9, Epoch: 4}, {Topic: "room/1", Seq: 9, Sub: 6}}})
	w.expectSettled("")
}

func TestTheTimerOfAMemberBeginsWithItsBytes(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{ReceiveWindow: 2}, &wirev1.Subscribe{Ack: true})
	c.slow = true
	msgs := w.log(1)
	w.mesh.Assign(m, 0, msgs[0])
	w.pass(1900 * time.Millisecond)
	w.expectSettled("") // its bytes have not left
	c.slow = false
	c.expect("room/1/1 subs=[5]")
	w.pass(1900 * time.Millisecond)
	w.expectSettled("")
	w.pass(200 * time.Millisecond)
	w.expectSettled("1 TIMEOUT")
	c.ack("room/1", 1, false) // late, and good
	w.expectSettled("1 ACKED")
	if w.h.Stats().Unacked != 0 {
		t.Error("something is in the window")
	}
}

func TestAMemberThatLetsEverythingTimeOutIsClosed(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true, ReceiveWindow: 1})
	msgs := w.log(1)
	for n := range uint32(3) {
		w.mesh.Assign(m, n, msgs[0])
		w.settle()
		c.take()
		w.pass(2100 * time.Millisecond)
		w.expectSettled("1 TIMEOUT")
	}
	c.expect("room/1/1 subs=[5]", "room/1/1 attempt=1 subs=[5]", "room/1/1 attempt=2 subs=[5]", "Error ACK_TIMEOUT ref=0")
	if len(w.mesh.Members()) != 0 {
		t.Error("it is a member still")
	}
}

// The connection's window holds for all its subscriptions together: what a member can't be sent
// goes back.
func TestAMembersConnectionHasAWindow(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{ReceiveWindow: 2}, &wirev1.Subscribe{Ack: true})
	if m.Window != 2 {
		t.Fatalf("window %d", m.Window)
	}
	c.subscribe(&wirev1.Subscribe{Id: 6, Filter: "room/2", Ack: true})
	c.expect("Subscribed 6 head=0")
	w.mesh.Send("room/2", "a")
	w.settle()
	msgs := w.log(2)
	w.mesh.Assign(m, 0, msgs[0], msgs[1])
	c.expect("room/2/1", "room/1/1 subs=[5]")
	c.ack("room/2", 1, false)
	c.expect("room/1/2 subs=[5]")
	c.ack("room/1", 1, false)
	w.mesh.Send("room/2", "b")
	c.expect("room/2/2")
	c.subscribe(&wirev1.Subscribe{Id: 7, Filter: "room/3", Ack: true})
	w.expectSettled("1 ACKED")
	w.mesh.Assign(m, 0, msgs[0])
	c.expect("Subscribed 7 head=0") // the window is full
	w.pass(2100 * time.Millisecond)
	if got := w.settledText(); !strings.Contains(got, "1 UNSENT") || !strings.Contains(got, "2 TIMEOUT") {
		t.Fatal(got)
	}
}

func TestUnsubscribeGivesBack(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true})
	msgs := w.log(3)
	w.mesh.Assign(m, 0, msgs[0])
	c.expect("room/1/1 subs=[5]")
	c.slow = true
	w.mesh.Assign(m, 0, msgs[1], msgs[2])
	w.settle()
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 5})
	w.expectSettled("2 UNSENT, 3 UNSENT") // the first was sent: leaving gives it back as an attempt
	c.slow = false
	c.expect("Unsubscribed 5")
	if len(w.mesh.Members()) != 0 || w.h.Stats().Unacked != 0 || w.h.Stats().Subscriptions != 0 {
		t.Errorf("%v, %+v", w.mesh.Members(), w.h.Stats())
	}
	w.mesh.Assign(m, 0, msgs[0]) // it was on its way
	c.expect()
	c.ack("room/1", 1, false)
	w.expectSettled("")
}

func TestAMembersConnectionEnds(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true})
	w.mesh.Assign(m, 0, w.log(3)...)
	w.settle()
	w.h.Gone(c.slot)
	w.settle()
	w.expectSettled("1 UNSENT, 2 UNSENT, 3 UNSENT")
	if len(w.mesh.Members()) != 0 || w.h.Stats() != (counters.Stats{Frames: w.h.Stats().Frames, StaleEvents: w.h.Stats().StaleEvents, Closes: w.h.Stats().Closes, Deliveries: w.h.Stats().Deliveries}) {
		t.Errorf("%v, %+v", w.mesh.Members(), w.h.Stats())
	}
}

func TestWithoutAckWhatIsSentIsSettled(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{ReceiveWindow: 1}, &wirev1.Subscribe{})
	w.mesh.Assign(m, 0, w.log(2)...)
	c.expect("room/1/1 subs=[5]", "room/1/2 subs=[5]")
	w.expectSettled("1 ACKED, 2 ACKED")
}

func TestADrainingEdgeTakesNothingMoreForItsMembers(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{ReceiveWindow: 1}, &wirev1.Subscribe{Ack: true})
	msgs := w.log(3)
	w.mesh.Assign(m, 0, msgs[0], msgs[1])
	c.expect("room/1/1 subs=[5]")
	w.h.Event(exchange.Drain{DeadlineMS: 5000})
	w.settle()
	c.expect("GoAway")
	w.expectSettled("2 UNSENT")
	w.mesh.Assign(m, 0, msgs[2])
	w.settle()
	w.expectSettled("3 UNSENT")
	if all := w.mesh.Members(); len(all) != 1 || !all[0].Paused {
		t.Fatalf("%+v", all)
	}
	c.ack("room/1", 1, false)
	w.expectSettled("1 ACKED")
	w.pass(200 * time.Millisecond)
	c.expect()
	if !c.ended || len(w.mesh.Members()) != 0 {
		t.Errorf("ended %v, %v", c.ended, w.mesh.Members())
	}
}

func TestAGroupRefusesAndEnds(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{Session: "s"})
	long := strings.Repeat("x", 65)
	for _, m := range []*wirev1.Subscribe{
		{Filter: "a", GroupKey: "topic"},
		{Filter: "a", Group: long},
		{Filter: "a", Group: "a/b"},
		{Filter: "a", Group: "a\nb"},
		{Filter: "a", Group: "g", GroupKey: "header:"},
		{Filter: "a", Group: "g", GroupKey: "payload"},
		{Filter: "a", Group: "g", Start: wirev1.Start_START_SESSION},
		{Filter: strings.Repeat("x", 250), Group: "group"},
	} {
		m.Id = 1
		c.subscribe(m)
		c.expect("Error INVALID_ARGUMENT ref=1")
	}
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "a", Group: "g", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE})
	c.expect("Error UNSUPPORTED ref=1")
	w.mesh.GroupErr = code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "too many")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "#", Group: "g"})
	c.expect("Error TOO_MANY_TOPICS ref=1")
	w.mesh.GroupErr = nil
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "#", Group: "g"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "#", Group: "g"})
	c.expect("Subscribed 1 head=0", "Error INVALID_ARGUMENT ref=1")
	var counts []uint64
	w.h.Event(exchange.Count{Topics: []string{"room/1", "$x"}, Reply: func(n []uint64) { counts = n }})
	w.settle()
	if len(counts) != 2 || counts[0] != 1 || counts[1] != 0 {
		t.Errorf("counted %v", counts)
	}
	m := w.mesh.Members()[0]
	w.h.Event(exchange.GroupEnded{Conn: m.Conn, Sub: m.Sub, Code: wirev1.Code_CODE_TOO_MANY_TOPICS})
	c.expect("Unsubscribed 1")
	if len(w.mesh.Members()) != 0 {
		t.Error("it is a member still")
	}
}

// The client of a member answers Pings and reads nothing: what it was assigned goes back, and it
// gets nothing more until it reads.
func TestWhatAMemberDoesNotReadGoesBack(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true})
	msgs := w.log(4)
	c.slow = true
	w.mesh.Assign(m, 0, msgs[:3]...)
	w.settle()
	c.in = append(c.in, bytes.Join(w.h.Gather(c.slot, nil, 0), nil)[:7]...)
	w.h.Wrote(c.slot, 7) // a part of the first
	w.h.Stalled(c.slot, Held{})
	w.pass(1900 * time.Millisecond)
	w.expectSettled("")
	w.pass(200 * time.Millisecond)
	w.expectSettled("2 UNSENT, 3 UNSENT, 1 TIMEOUT")
	if s := w.h.Stats(); !w.mesh.Members()[0].Paused || s.Unacked != 0 || s.Recalled != 2 {
		t.Fatalf("%+v, %+v", w.mesh.Members(), s)
	}
	w.mesh.Assign(m, 0, msgs[3]) // it was on its way
	w.expectSettled("4 UNSENT")
	c.slow = false
	w.h.StallEnded(c.slot)
	c.expect("room/1/1 subs=[5]") // its rest
	if w.mesh.Members()[0].Paused {
		t.Fatal("it reads again, and gets nothing")
	}
	w.mesh.Assign(m, 1, msgs[1])
	c.expect("room/1/2 attempt=1 subs=[5]")
}

// What a member was assigned and had no room for is sent as soon as its client reads again: it does
// not lie there until its time is over and another member gets it.
func TestWhatAMemberHadNoRoomForIsSentOnceItReadsAgain(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 2})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{})
	msgs := w.log(4)
	c.slow = true
	for i, wait := range []time.Duration{1000 * time.Millisecond, 0, 500 * time.Millisecond, 1500 * time.Millisecond} {
		w.mesh.Assign(m, 0, msgs[i])
		w.pass(wait)
	}
	// nothing is left in the queue that the client would have to read
	w.expectSettled("1 UNSENT, 2 UNSENT, 3 UNSENT")
	c.slow = false
	c.expect("room/1/4 subs=[5]")
	w.expectSettled("4 ACKED")
}

// What a member ACKs is counted as what others do, and so is an ACK for nothing.
func TestACKsOfMembersAreCounted(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{}, &wirev1.Subscribe{Ack: true})
	w.mesh.Assign(m, 0, w.log(3)...)
	c.texts()
	c.ack("room/1", 2, true)
	c.ack("room/1", 2, true)
	if s := w.h.Stats(); s.Acks != 2 || s.StaleAcks != 1 || s.Unacked != 1 {
		t.Fatalf("%d ACKs, %d for nothing, %d un-ACKed", s.Acks, s.StaleAcks, s.Unacked)
	}
}

// All that has expired in the queue of a member goes back before the next write, not one message a
// write: none of it is sent.
func TestWhateverExpiredInTheQueueOfAMemberGoesBack(t *testing.T) {
	w := newWorld(t, Limits{})
	c, m := w.member(&wirev1.Hello{HeartbeatMs: 600_000}, &wirev1.Subscribe{Ack: true})
	c.slow = true
	msgs := w.log(5)
	w.in(1, msgs[0], msgs[1], msgs[2], msgs[4])
	w.mesh.Assign(m, 0, msgs...)
	w.settle()
	w.pass(1500 * time.Millisecond)
	c.reads("room/1/4 subs=[5]")
	w.expectSettled("1 UNSENT, 2 UNSENT, 3 UNSENT, 5 UNSENT")
}

// Once a subscription has ended, nothing of it is left in the queue, gaps that were named but not
// sent among it.
func TestHolesEndWithTheirSubscription(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	m := w.mesh.Append("room/1", "a")
	w.in(-1, m...)
	w.mesh.Live(m...)
	w.pass(gaps.Delay)
	if n := w.h.conns.Get(c.slot).Out.Len(); n != 2 { // the epoch and the hole
		t.Fatalf("%d items are queued", n)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	c.reads("Unsubscribed 1")
}
