package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// membership is a subscription that shares its messages with others. It has no tracks: what it gets
// was assigned to it by the group's dispatcher, wherever that is, and goes back there un-ACKed. It
// belongs to its connection.
type membership struct {
	c      *conn
	id     uint32 // the client's
	ref    uint32 // names it to the mesh
	group  string
	filter string
	of     *members
	at     int // in of.all
	ack    bool
	open   bool // Subscribed was sent
	dead   bool
	waits  bool // has entries that wait for a window or the queue
	runs   bool // in hub.runnable
	// stalled: its client does not read, and it gets nothing until that takes what is queued for
	// it.
	stalled bool
	window  uint32
	since   uint32 // when it was made, Unix time in seconds

	entries []assigned // in the order they came
	head    int
	sent    int                 // where the one that left last is, about
	late    []*exchange.Message // timed out: their ACKs may come yet

	// The policy of the topic seen last.
	topic    string
	policy   *policy.Policy
	policies uint32
}

type assignedState uint8

const (
	assignedWaits assignedState = iota // for the connection's window or its queue
	// its bytes have not left; due as if they had when it was assigned
	assignedQueued
	assignedSent
)

// assigned is one message of a membership. A nil m is a place whose message is settled.
type assigned struct {
	m       *exchange.Message
	due     int64
	attempt uint16
	state   assignedState
}

const (
	// maxGroupWindow bounds what one member has: its list is walked.
	maxGroupWindow = 1024
)

// subscribeGroup makes a member of the subscription.
func (h *Hub) subscribeGroup(c *conn, m *wirev1.Subscribe) {
	c.nextRef++
	g := &membership{
		c: c, id: m.GetId(), ref: c.nextRef, group: m.GetGroup(), filter: m.GetFilter(), ack: m.GetAck(),
		window: min(c.window, maxGroupWindow), since: uint32(h.wall / 1e6),
	}
	if w := m.GetReceiveWindow(); w > 0 {
		g.window = min(w, g.window)
	}
	more := h.more(c)
	more.groups = append(more.groups, g)
	c.displaced()
	h.addMember(g)
	h.stats.Subscriptions++
	st := startOf(m)
	h.mesh.JoinGroup(h.handle(c), g.ref, &exchange.GroupJoin{
		Group: g.group, Filter: g.filter, Key: m.GetGroupKey(), Window: g.window,
		Start: exchange.GroupStart{Mode: st.mode, Seq: st.seq, Epoch: st.epoch, Positions: st.positions},
	})
}

func (c *conn) memberByRef(ref uint32) *membership {
	for _, g := range c.groups {
		if g.ref == ref && !g.dead {
			return g
		}
	}
	return nil
}

func (c *conn) memberByID(id uint32) *membership {
	for _, g := range c.groups {
		if g.id == id {
			return g
		}
	}
	return nil
}

func (h *Hub) groupJoined(c *conn, e exchange.GroupJoined) {
	g := c.memberByRef(e.Sub)
	switch {
	case g == nil || g.open:
		h.stats.StaleEvents++
	case e.Err != nil:
		h.leaveGroup(g)
		h.refuse(c, g.id, code.From(e.Err))
	default:
		g.open = true
		h.rooms.report.Subscribed(h.handle(c), g.filter, g.group, g.ack)
		h.rooms.presence.Moved(h.handle(c), g.filter, topic.IsFilter(g.filter))
		h.control(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: g.id, Epoch: e.Epoch, Head: e.Head, Recovered: true})
		if c.draining {
			h.pauseGroup(g)
		}
	}
}

func (h *Hub) groupEnded(c *conn, e exchange.GroupEnded) {
	if g := c.memberByRef(e.Sub); g != nil {
		h.endGroup(g, e.Code, e.Reason)
	}
}

// endGroup ends a membership and says so.
func (h *Hub) endGroup(g *membership, why wirev1.Code, reason string) {
	h.leaveGroup(g)
	if g.open {
		h.rooms.report.Unsubscribed(h.handle(g.c), g.filter, g.group, why, reason)
	}
	h.control(g.c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: g.id, Code: why, Reason: reason})
}

// leaveGroup gives everything back: nothing of the membership is sent any more.
func (h *Hub) leaveGroup(g *membership) {
	c := g.c
	g.dead = true
	h.rooms.presence.Moved(h.handle(c), g.filter, topic.IsFilter(g.filter))
	h.looked(int(c.out.Len()) + len(g.live()))
	c.out.DropSubscription(g.id)
	for i := range g.live() {
		if e := &g.live()[i]; e.m != nil {
			if e.state != assignedSent {
				h.settled(g, e.m, meshv1.GroupSettle_HOW_UNSENT, 0)
			}
			h.uncount(g, e)
		}
	}
	g.entries, g.head, g.stalled = nil, 0, false
	c.timedOut -= min(c.timedOut, uint32(len(g.late)))
	h.groupWaits(g, false)
	more := h.more(c)
	more.groups = slices.DeleteFunc(more.groups, func(o *membership) bool { return o == g })
	c.displaced()
	if len(more.groups) == 0 {
		more.groups = nil
	}
	h.less(c)
	h.dropMember(g)
	h.stats.Subscriptions--
	h.flushSettled()
	h.mesh.LeaveGroup(h.handle(c), g.ref)
	h.wake(c)
}

// pauseGroup has the membership take nothing more; what it has may still be ACKed.
func (h *Hub) pauseGroup(g *membership) {
	h.looked(len(g.live()))
	for i := range g.live() {
		if e := &g.live()[i]; e.m != nil && e.state == assignedWaits {
			h.settled(g, e.m, meshv1.GroupSettle_HOW_UNSENT, 0)
			e.m = nil
		}
	}
	g.advance()
	g.stalled = false
	h.groupWaits(g, false)
	h.mesh.PauseGroup(h.handle(g.c), g.ref)
}

// assigned takes what the dispatcher gave to a member.
func (h *Hub) assigned(c *conn, e exchange.Assigned) {
	g := c.memberByRef(e.Sub)
	if g == nil {
		h.stats.StaleEvents++
		return // it has left, which gave them back
	}
	h.looked(len(e.Messages) * looksAsOne)
	for i, m := range e.Messages {
		switch {
		case m.Seq == 0:
			it := sendq.Assignment(m, g.id, 0)
			h.queueEphemeral(c, &it, wirev1.Overflow_OVERFLOW_DEFAULT)
		case c.draining, g.stalled:
			h.settled(g, m, meshv1.GroupSettle_HOW_UNSENT, 0)
		default:
			due := h.now + int64(h.groupPolicy(g, m.Topic).AckTimeout)
			g.add(assigned{m: m, attempt: uint16(min(e.Attempts[i], 65535)), due: due})
			h.wheel.Sooner(c.slot, due)
		}
	}
	h.handGroup(g, len(g.live()))
}

func (g *membership) live() []assigned { return g.entries[g.head:] }

func (g *membership) add(e assigned) {
	if g.head > 0 && len(g.entries) == cap(g.entries) {
		n := copy(g.entries, g.entries[g.head:])
		clear(g.entries[n:])
		g.entries, g.head = g.entries[:n], 0
	}
	g.entries = append(g.entries, e)
}

// advance moves over what is settled.
func (g *membership) advance() {
	for g.head < len(g.entries) && g.entries[g.head].m == nil {
		g.head++
	}
	if g.head == len(g.entries) {
		g.entries, g.head = g.entries[:0], 0
	}
}

// runGroup puts a membership with messages that wait in line.
func (h *Hub) runGroup(g *membership) {
	if !g.runs {
		g.runs = true
		h.runnable.push(runner{g: g})
	}
}

// handGroup queues what waits, as far as window and queue allow, at most so many messages, and
// reports how many.
func (h *Hub) handGroup(g *membership, most int) (done int) {
	c := g.c
	if g.runs = false; g.dead {
		return 0
	}
	h.looked(len(g.live()))
	for i := g.head; i < len(g.entries); i++ {
		e := &g.entries[i]
		if e.m == nil || e.state != assignedWaits {
			continue
		}
		if c.state != stateOpen || c.draining {
			return done
		}
		if g.ack && c.unacked >= c.window || h.full(c, len(e.m.Frame)) != wirev1.Code_CODE_OK {
			h.groupWaits(g, true)
			return done
		}
		if done == most {
			h.groupWaits(g, false)
			h.runGroup(g)
			return done
		}
		done++
		e.state = assignedQueued
		if g.ack {
			c.unacked++
			h.stats.Unacked++
		}
		it := sendq.Assignment(e.m, g.id, e.attempt)
		h.push(c, &it)
	}
	h.groupWaits(g, false)
	return done
}

func (h *Hub) groupWaits(g *membership, waits bool) {
	switch {
	case !waits && g.stalled:
		return
	case waits && !g.waits:
		g.c.waiting++
	case !waits && g.waits:
		g.c.waiting--
	}
	g.waits = waits
}

// groupSent is told when a message's bytes have left for the kernel: the ACK timer starts.
func (h *Hub) groupSent(c *conn, id uint32, m *exchange.Message) {
	g := c.memberByID(id)
	if g == nil {
		return
	}
	e := g.queued(m)
	switch {
	case e == nil:
	case !g.ack: // what is not ACKed is settled by being sent
		h.settle1(g, e, meshv1.GroupSettle_HOW_ACKED, 0)
		g.advance()
	default:
		e.state = assignedSent
		e.due = h.now + int64(h.groupPolicy(g, e.m.Topic).AckTimeout)
		h.wheel.Sooner(c.slot, e.due)
	}
}

// queued finds the entry of a message that is queued: mostly it is the one behind the one that left
// last.
func (g *membership) queued(m *exchange.Message) *assigned {
	live := g.live()
	g.sent -= min(g.sent, g.head) // relative to the first
	from := min(g.sent, len(live))
	for n := range live {
		i := from + n
		if i >= len(live) {
			i -= len(live)
		}
		if e := &live[i]; e.m == m && e.state == assignedQueued {
			g.sent = i + g.head
			return e
		}
	}
	return nil
}

// ackGroup settles what an entry of an Ack covers and says how many messages that were.
func (h *Hub) ackGroup(g *membership, a *ackEntry) (n int) {
	if a.sub != 0 && a.sub != g.id {
		return 0
	}
	h.looked(len(g.live()) + len(g.late))
	for i := range g.live() {
		if e := &g.live()[i]; e.m != nil && e.state == assignedSent && a.covers(e.m) {
			h.tellDeliveredIn(g, e.m)
			h.settle1(g, e, meshv1.GroupSettle_HOW_ACKED, 0)
			if n++; !a.through {
				break
			}
		}
	}
	g.advance()
	kept := g.late[:0]
	for _, m := range g.late {
		if !a.covers(m) {
			kept = append(kept, m)
			continue
		}
		h.tellDeliveredIn(g, m)
		h.settled(g, m, meshv1.GroupSettle_HOW_ACKED, 0)
		g.c.timedOut -= min(g.c.timedOut, 1)
		n++
	}
	clear(g.late[len(kept):])
	g.late = kept
	return n
}

func (e *ackEntry) covers(m *exchange.Message) bool {
	return (m.Seq == e.seq || e.through && m.Seq < e.seq) && m.Topic == string(e.topic) && (e.epoch == 0 || e.epoch == m.Epoch)
}

// nackGroup gives a message back.
func (h *Hub) nackGroup(g *membership, m *wirev1.Nack) (found bool) {
	if m.GetSub() != 0 && m.GetSub() != g.id {
		return false
	}
	h.looked(len(g.live()))
	for i := range g.live() {
		if e := &g.live()[i]; e.m != nil && e.state == assignedSent && e.m.Seq == m.GetSeq() && e.m.Topic == m.GetTopic() {
			h.settle1(g, e, meshv1.GroupSettle_HOW_NACKED, min(m.GetDelayMs(), maxNackDelay))
			g.advance()
			return true
		}
	}
	return false
}

// groupTimers gives back what was not ACKed in time, and says when the next is due.
func (h *Hub) groupTimers(g *membership, next int64) int64 {
	c, unsent := g.c, false
	for i := range g.live() {
		e := &g.live()[i]
		switch {
		case e.m == nil:
			continue
		case h.now < e.due:
			next = min(next, e.due)
			continue
		case e.state == assignedQueued:
			unsent = true
			continue
		case e.state == assignedWaits: // another may have room
			h.settle1(g, e, meshv1.GroupSettle_HOW_UNSENT, 0)
			continue
		}
		h.timedOut(g, e)
	}
	if unsent {
		h.recall(g)
	}
	g.advance()
	if g.policy != nil && len(g.late) >= int(g.window*(g.policy.MaxRedeliveries+1)) {
		h.fail(c, wirev1.Code_CODE_ACK_TIMEOUT, "a window's worth of messages was not ACKed in time")
	}
	return next
}

// recall gives back what has been in the queue for ack_timeout: the client does not read. Until it
// takes something the member gets nothing more. A message of which a part has left can't be taken
// back: it counts as one that timed out.
func (h *Hub) recall(g *membership) {
	c := g.c
	q := &c.out
	h.looked(int(q.Len()))
	for i := range q.Len() {
		it := q.At(i)
		if it.Kind() != sendq.Message || it.Stream() != nil || it.Subscription() != g.id || it.Message().Seq == 0 || q.Begun(i) {
			continue
		}
		if e := g.queued(it.Message()); e != nil && h.now >= e.due {
			q.Drop(i)
			h.settle1(g, e, meshv1.GroupSettle_HOW_UNSENT, 0)
			h.stats.Recalled++
		}
	}
	q.Compact()
	for i := range g.live() {
		if e := &g.live()[i]; e.m != nil && e.state == assignedQueued && h.now >= e.due {
			h.timedOut(g, e)
		}
	}
	if !g.stalled && !c.draining && (q.Len() > 0 || q.IsStalled() || c.sealed > 0) {
		g.stalled = true
		h.groupWaits(g, true)
		h.mesh.PauseGroup(h.handle(c), g.ref)
	}
}

// readsAgain has a member get messages again whose client has taken what was in the queue. Those
// that waited before are handed on first: the member waits, still.
func (h *Hub) readsAgain(g *membership) {
	g.stalled = false
	h.mesh.ResumeGroup(h.handle(g.c), g.ref)
}

// timedOut gives a message back that the client may have, and has not ACKed in time.
func (h *Hub) timedOut(g *membership, e *assigned) {
	h.stats.AckTimeouts++
	g.c.timedOut++
	g.late = append(g.late, e.m)
	h.settle1(g, e, meshv1.GroupSettle_HOW_TIMEOUT, 0)
}

// settle1 takes an entry out of the windows and tells the dispatcher.
func (h *Hub) settle1(g *membership, e *assigned, how meshv1.GroupSettle_How, delay uint32) {
	h.settled(g, e.m, how, delay)
	h.uncount(g, e)
	h.wake(g.c)
}

func (h *Hub) uncount(g *membership, e *assigned) {
	if g.ack && e.state != assignedWaits {
		g.c.unacked--
		h.stats.Unacked--
	}
	e.m = nil
}

// settled gathers what the dispatchers are told once in a while.
func (h *Hub) settled(g *membership, m *exchange.Message, how meshv1.GroupSettle_How, delay uint32) {
	if len(h.settling) == 0 {
		h.jobs.push(tellSettled{})
	}
	h.settling = append(h.settling, exchange.GroupSettled{Conn: h.handle(g.c), Sub: g.ref, Message: m, How: how, DelayMS: delay})
}

type tellSettled struct{}

func (tellSettled) step(h *Hub) bool {
	h.flushSettled()
	return true
}

func (h *Hub) flushSettled() {
	if len(h.settling) > 0 {
		h.mesh.SettleGroup(h.settling)
		h.settling = nil
	}
}

func (h *Hub) groupPolicy(g *membership, topic string) *policy.Policy {
	if g.policy == nil || g.policies != h.policies || g.topic != topic {
		g.topic, g.policy, g.policies = topic, h.cfg.PolicyFor(topic), h.policies
	}
	return g.policy
}
