package membership

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// dispatcher notes what it is told; it is what members need of delivery, too.
type dispatcher struct {
	exchange.Groups
	settled         []exchange.GroupSettled
	joined, paused  int
	policies, acked int
}

func (d *dispatcher) JoinGroup(exchange.Conn, uint32, *exchange.GroupJoin) { d.joined++ }
func (d *dispatcher) LeaveGroup(exchange.Conn, uint32)                     { d.joined-- }
func (d *dispatcher) PauseGroup(exchange.Conn, uint32)                     { d.paused++ }
func (d *dispatcher) ResumeGroup(exchange.Conn, uint32)                    { d.paused-- }
func (d *dispatcher) SettleGroup(all []exchange.GroupSettled)              { d.settled = append(d.settled, all...) }
func (d *dispatcher) Acknowledged(*Member, *exchange.Message)              { d.acked++ }

func (d *dispatcher) Policy(string) *policy.Policy {
	d.policies++
	return &policy.Policy{AckTimeout: time.Second, MaxRedeliveries: 0, DeliveredEvents: true}
}

type world struct {
	t    *testing.T
	d    *dispatcher
	g    *Groups
	jobs walk.Jobs
	m    *Member
}

func newWorld(t *testing.T, ack bool) *world {
	w := &world{t: t, d: &dispatcher{}}
	w.g = New(w.d, w.d, &w.jobs, &walk.Cost{})
	w.m = w.g.Join(exchange.Conn{}, 1, &wirev1.Subscribe{Id: 7, Group: "g", Filter: "room/+", Ack: ack}, 4, 0, exchange.GroupStart{}, "192.0.2.1")
	w.m.Opened()
	return w
}

// assign gives the member messages 1 to n of room/1 at time 0, and has as many of them queued.
func (w *world) assign(n int) (all []*exchange.Message) {
	for seq := range n {
		m := &exchange.Message{Topic: "room/1", Epoch: 5, Seq: uint64(seq + 1)}
		if due := w.m.Assign(m, 0, 0, true); due != int64(time.Second) {
			w.t.Fatalf("due at %d", due)
		}
		all = append(all, m)
	}
	for i := range w.m.Live() {
		w.m.Queued(&w.m.Live()[i])
	}
	return all
}

// told runs the jobs, and says how many messages the dispatcher was told each of.
func (w *world) told() map[meshv1.GroupSettle_How]int {
	for w.jobs.Len() > 0 {
		w.jobs.Step()
	}
	if !w.g.AtRest() {
		w.t.Fatal("something is not told")
	}
	n := map[meshv1.GroupSettle_How]int{}
	for _, s := range w.d.settled {
		n[s.How]++
	}
	return n
}

func (w *world) is(unacked, late, live int) {
	w.t.Helper()
	if int(w.m.Unacked()) != unacked || int(w.m.Late()) != late || len(w.m.Live()) != live {
		w.t.Fatalf("%d un-ACKed, %d late, %d live", w.m.Unacked(), w.m.Late(), len(w.m.Live()))
	}
	for _, e := range w.m.entries[:w.m.head] {
		if e.Message != nil {
			w.t.Fatal("a message that is not settled is before the live ones")
		}
	}
}

// A message is the member's until its client has answered, or the time for that is over; an ACK
// that comes late still counts.
func TestWhatBecomesOfAssignedMessages(t *testing.T) {
	w := newWorld(t, true)
	all := w.assign(4)
	for _, m := range all {
		w.m.Sent(m, 0)
	}
	w.is(4, 0, 4)
	if n := w.m.Ack(&Ack{Topic: []byte("room/1"), Seq: 2}); n != 1 {
		t.Fatalf("%d were ACKed", n)
	}
	if w.m.Nack("room/1", 2, 0) || !w.m.Nack("room/1", 1, 0) {
		t.Fatal("only what is with the client can be given back")
	}
	w.is(2, 0, 2)
	if next, unsent := w.m.Due(int64(time.Second), 1<<60); unsent || next != 1<<60 {
		t.Fatalf("next at %d, unsent %t", next, unsent)
	}
	w.is(0, 2, 0)
	if w.m.Failed() {
		t.Fatal("two of a window of four have timed out")
	}
	if n := w.m.Ack(&Ack{Topic: []byte("room/1"), Seq: 4, Epoch: 5, Through: true}); n != 2 {
		t.Fatalf("%d were ACKed late", n)
	}
	w.is(0, 0, 0)
	if n := w.told(); n[meshv1.GroupSettle_HOW_ACKED] != 3 || n[meshv1.GroupSettle_HOW_NACKED] != 1 || n[meshv1.GroupSettle_HOW_TIMEOUT] != 2 || w.d.acked != 3 {
		t.Fatalf("told %v, %d events", n, w.d.acked)
	}
	if w.d.policies != 1 {
		t.Fatalf("the policy of one topic was asked for %d times", w.d.policies)
	}
}

// What a client does not read goes to others: queued messages are recalled once they are due, and
// nothing is taken until the client reads again.
func TestMessagesThatAreNotReadAreRecalled(t *testing.T) {
	w := newWorld(t, true)
	all := w.assign(2)
	if _, unsent := w.m.Due(int64(time.Second), 1<<60); !unsent {
		t.Fatal("nothing is to be recalled")
	}
	if w.m.Recall(all[0], 0) || !w.m.Recall(all[0], int64(time.Second)) {
		t.Fatal("what is due is recalled, and nothing else")
	}
	w.m.Recalled(int64(time.Second)) // of the other a part has left
	w.is(0, 1, 0)
	w.m.Stall()
	if w.m.Assign(all[1], 1, 0, true) != 0 || w.d.paused != 1 {
		t.Fatal("a member takes messages whose client does not read")
	}
	w.m.Resume()
	if w.m.Assign(all[1], 1, 0, true) == 0 || w.d.paused != 0 {
		t.Fatal("it takes none once the client reads again")
	}
	w.m.Leave()
	if n := w.told(); n[meshv1.GroupSettle_HOW_UNSENT] != 3 || n[meshv1.GroupSettle_HOW_TIMEOUT] != 1 || w.d.joined != 0 || w.g.Len() != 0 || w.m.Counts() {
		t.Fatalf("told %v, %d members, %d filters", n, w.d.joined, w.g.Len())
	}
	if s := w.g.Stats(); s.Recalled != 1 || s.AckTimeouts != 1 {
		t.Fatalf("counted %+v", s)
	}
}

// What is not ACKed is settled once it is sent, and takes nothing of a window.
func TestMembersThatDoNotACK(t *testing.T) {
	w := newWorld(t, false)
	for _, m := range w.assign(2) {
		if due := w.m.Sent(m, 0); due != 0 {
			t.Fatalf("an ACK is due at %d", due)
		}
	}
	w.is(0, 0, 0)
	if n := w.told(); n[meshv1.GroupSettle_HOW_ACKED] != 2 {
		t.Fatalf("told %v", n)
	}
}
