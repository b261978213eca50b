package membership

import (
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Member is a subscription that shares its messages with others. What it gets was assigned to it by
// the group's dispatcher, wherever that is, and goes back there un-ACKed. It belongs to its
// connection.
type Member struct {
	Conn   exchange.Conn
	ID     uint32 // the client's
	Ref    uint32 // names it to the mesh
	Group  string
	Filter string
	ACK    bool
	Since  uint32 // when it was made, Unix time in seconds

	groups *Groups
	of     *List
	at     int  // in of.Members
	open   bool // the client was told that it has joined
	ended  bool
	// stalled: its client does not read, and it gets nothing until that takes what is queued for
	// it.
	stalled bool
	window  uint32
	unacked uint32 // messages in the queue or with the client, where it ACKs

	entries []Assigned // in the order they came
	head    int
	bytes   int // that entries and late keep
	sent    int // where the one that left last is, about
	// late timed out, and their ACKs may come yet: what names them, without their frames.
	late []*exchange.Message

	// The policy of the topic seen last.
	topic    string
	policy   *policy.Policy
	policies uint32
}

// State of a message that was assigned.
type State uint8

const (
	// Waiting is for the connection's window or its queue.
	Waiting State = iota
	// Queued is when its bytes have not left; it is due as if they had when it was assigned.
	Queued
	// Sent is with the client.
	Sent
)

// Assigned is one message of a member.
type Assigned struct {
	Message *exchange.Message // nil: it is settled, and only its place is left
	Due     int64             // when it goes back, as time of the loop
	Attempt uint16
	State   State
}

// Join makes a member of a Subscribe that was found good, with a window of at most window. origin
// is its client's address, as in GroupJoin. The dispatcher's answer is GroupJoined.
func (g *Groups) Join(conn exchange.Conn, ref uint32, m *wirev1.Subscribe, window, since uint32, start exchange.GroupStart, origin string) *Member {
	n := &Member{
		Conn: conn, ID: m.GetId(), Ref: ref, Group: m.GetGroup(), Filter: m.GetFilter(), ACK: m.GetAck(), Since: since,
		groups: g, window: min(window, maxWindow), policies: g.policies,
	}
	if w := m.GetReceiveWindow(); w > 0 {
		n.window = min(w, n.window)
	}
	g.list(n)
	g.mesh.JoinGroup(conn, ref, &exchange.GroupJoin{Group: n.Group, Filter: n.Filter, Key: m.GetGroupKey(), Window: n.window, Start: start, Origin: origin})
	return n
}

// Opened notes that the client was told that it has joined.
func (m *Member) Opened() { m.open = true }

// Open reports whether the client was told that it has joined.
func (m *Member) Open() bool { return m.open }

// Counts reports whether it makes its connection one of the filter's members.
func (m *Member) Counts() bool { return m.open && !m.ended }

// Ended reports whether it has left.
func (m *Member) Ended() bool { return m.ended }

// Stalled reports whether it gets nothing because its client does not read.
func (m *Member) Stalled() bool { return m.stalled }

// Listed reports whether it is found by its filter.
func (m *Member) Listed() bool {
	return m.groups.lists[m.Filter] == m.of && m.at < len(m.of.Members) && m.of.Members[m.at] == m
}

// Unacked is how many of its messages are in the connection's window.
func (m *Member) Unacked() uint32 { return m.unacked }

const (
	// assignedBytes is what an entry takes, twice where there are more and more.
	assignedBytes = 64
	// lateBytes is what is left of a message that timed out, its topic included.
	lateBytes = 320
)

// Bytes is how much memory it keeps for its messages.
func (m *Member) Bytes() int { return m.bytes }

// Late is how many of its messages went back un-ACKed and may be ACKed yet.
func (m *Member) Late() uint32 { return uint32(len(m.late)) }

// Live are the messages that it has, and places of those that were settled between them. It is good
// until the member is used again.
func (m *Member) Live() []Assigned { return m.entries[m.head:] }

// Leave gives everything back; what is queued must be gone from the queue.
func (m *Member) Leave() {
	g := m.groups
	m.ended = true
	g.cost.Add(len(m.Live()))
	for i := range m.Live() {
		if e := &m.Live()[i]; e.Message != nil && e.State != Sent {
			g.answer(m, e.Message, meshv1.GroupSettle_HOW_UNSENT, 0)
		}
	}
	m.entries, m.head, m.bytes, m.unacked, m.late, m.stalled = nil, 0, 0, 0, nil, false
	g.unlist(m)
	g.flush()
	g.mesh.LeaveGroup(m.Conn, m.Ref)
}

// Pause has the dispatcher assign nothing more and gives back what waits; what else it has may
// still be ACKed.
func (m *Member) Pause() {
	m.groups.cost.Add(len(m.Live()))
	for i := range m.Live() {
		if e := &m.Live()[i]; e.Message != nil && e.State == Waiting {
			m.settle(e, meshv1.GroupSettle_HOW_UNSENT, 0)
		}
	}
	m.advance()
	m.stalled = false
	m.groups.mesh.PauseGroup(m.Conn, m.Ref)
}

// Stall has it get nothing until Resume: its client does not read.
func (m *Member) Stall() {
	m.stalled = true
	m.groups.mesh.PauseGroup(m.Conn, m.Ref)
}

// Resume has it get messages again: its client has taken what was in the queue.
func (m *Member) Resume() {
	m.stalled = false
	m.groups.mesh.ResumeGroup(m.Conn, m.Ref)
}

// Assign takes a durable message that the dispatcher gave to the member, and says when it is due;
// 0: it went back at once, because the member takes none.
func (m *Member) Assign(msg *exchange.Message, attempts uint32, now int64, takes bool) (due int64) {
	if !takes || m.stalled {
		m.groups.answer(m, msg, meshv1.GroupSettle_HOW_UNSENT, 0)
		return 0
	}
	due = now + int64(m.policyOf(msg.Topic).AckTimeout)
	if m.head > 0 && len(m.entries) == cap(m.entries) {
		n := copy(m.entries, m.entries[m.head:])
		clear(m.entries[n:])
		m.entries, m.head = m.entries[:n], 0
	}
	m.entries = append(m.entries, Assigned{Message: msg, Attempt: uint16(min(attempts, 65535)), Due: due})
	m.bytes += assignedBytes + msg.Kept()
	return due
}

// Queued notes that a message is in the connection's queue.
func (m *Member) Queued(e *Assigned) {
	e.State = Queued
	if m.ACK {
		m.unacked++
	}
}

// Sent notes that a message's bytes have left for the kernel: the ACK timer starts. due is when it
// ends; 0: there is none.
func (m *Member) Sent(msg *exchange.Message, now int64) (due int64) {
	e := m.find(msg)
	switch {
	case e == nil:
		return 0
	case !m.ACK: // what is not ACKed is settled by being sent
		m.settle(e, meshv1.GroupSettle_HOW_ACKED, 0)
		m.advance()
		return 0
	}
	e.State = Sent
	e.Due = now + int64(m.policyOf(msg.Topic).AckTimeout)
	return e.Due
}

// find is the entry of a message that is queued: mostly it is the one behind the one that left
// last.
func (m *Member) find(msg *exchange.Message) *Assigned {
	live := m.Live()
	m.sent -= min(m.sent, m.head) // relative to the first
	from := min(m.sent, len(live))
	for n := range live {
		i := from + n
		if i >= len(live) {
			i -= len(live)
		}
		if e := &live[i]; e.Message == msg && e.State == Queued {
			m.sent = i + m.head
			return e
		}
	}
	return nil
}

// Ack is an entry of an Ack.
type Ack struct {
	Topic   []byte
	Seq     uint64
	Epoch   uint64 // 0: any
	Through bool   // those before are meant, too
}

func (a *Ack) covers(m *exchange.Message) bool {
	return (m.Seq == a.Seq || a.Through && m.Seq < a.Seq) && m.Topic == string(a.Topic) && (a.Epoch == 0 || a.Epoch == m.Epoch)
}

// Ack settles what an entry covers and says how many messages that were.
func (m *Member) Ack(a *Ack) (n int) {
	g := m.groups
	g.cost.Add(len(m.Live()) + len(m.late))
	for i := range m.Live() {
		if e := &m.Live()[i]; e.Message != nil && e.State == Sent && a.covers(e.Message) {
			m.acked(e.Message)
			m.settle(e, meshv1.GroupSettle_HOW_ACKED, 0)
			if n++; !a.Through {
				break
			}
		}
	}
	m.advance()
	kept := m.late[:0]
	for _, msg := range m.late {
		if !a.covers(msg) {
			kept = append(kept, msg)
			continue
		}
		m.acked(msg)
		g.answer(m, msg, meshv1.GroupSettle_HOW_ACKED, 0)
		m.bytes -= lateBytes
		n++
	}
	clear(m.late[len(kept):])
	m.late = kept
	return n
}

func (m *Member) acked(msg *exchange.Message) {
	if m.policyOf(msg.Topic).DeliveredEvents {
		m.groups.delivery.Acknowledged(m, msg)
	}
}

// Nack gives a message back, to be sent again after a delay at the earliest.
func (m *Member) Nack(topic string, seq uint64, delayMS uint32) (found bool) {
	m.groups.cost.Add(len(m.Live()))
	for i := range m.Live() {
		if e := &m.Live()[i]; e.Message != nil && e.State == Sent && e.Message.Seq == seq && e.Message.Topic == topic {
			m.settle(e, meshv1.GroupSettle_HOW_NACKED, delayMS)
			m.advance()
			return true
		}
	}
	return false
}

// Unassign gives a message back that has just been taken out of the queue.
func (m *Member) Unassign(msg *exchange.Message) (found bool) {
	e := m.find(msg)
	if e == nil {
		return false
	}
	m.settle(e, meshv1.GroupSettle_HOW_UNSENT, 0)
	m.advance()
	return true
}

// settle takes an entry out of the windows and tells the dispatcher.
func (m *Member) settle(e *Assigned, how meshv1.GroupSettle_How, delayMS uint32) {
	m.groups.answer(m, e.Message, how, delayMS)
	if m.ACK && e.State != Waiting {
		m.unacked--
	}
	m.bytes -= assignedBytes + e.Message.Kept()
	e.Message = nil
}

// advance moves over what is settled.
func (m *Member) advance() {
	for m.head < len(m.entries) && m.entries[m.head].Message == nil {
		m.head++
	}
	if m.head == len(m.entries) {
		m.entries, m.head = m.entries[:0], 0
	}
}

func (m *Member) policyOf(topic string) *policy.Policy {
	if m.policy == nil || m.policies != m.groups.policies || m.topic != topic {
		m.topic, m.policy, m.policies = topic, m.groups.delivery.Policy(topic), m.groups.policies
	}
	return m.policy
}
