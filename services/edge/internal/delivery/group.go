package delivery

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
)

// groups queues the messages of members, and takes to their connections what that means.
type groups struct {
	hub  *Hub
	room *membership.Groups
	// named is what concerned answers for one membership.
	named [1]*state.Member
}

// join makes a member of a subscription.
func (g *groups) join(c *state.Conn, m *wirev1.Subscribe) {
	h := g.hub
	c.NextRef++
	st := starts.Of(m, nil)
	n := &state.Member{Owner: c, Member: g.room.Join(h.handle(c), c.NextRef, m, c.Window, uint32(h.wall/1e6), exchange.GroupStart{
		Mode: st.Mode, Seq: st.Seq, Epoch: st.Epoch, Positions: st.Positions,
	}, h.origin(c))}
	more := h.conns.More(c)
	more.AddMember(n)
	h.rooms.permissions.Hold(h.handle(c), n.ID)
	c.Displaced()
	h.stats.Subscriptions++
}

// joined takes the dispatcher's answer to a join.
func (g *groups) joined(c *state.Conn, e exchange.GroupJoined) {
	h, n := g.hub, c.MemberByRef(e.Sub)
	switch {
	case n == nil || n.Open():
		h.stats.StaleEvents++
	case e.Err != nil:
		g.leave(n)
		h.refuse(c, n.ID, code.From(e.Err))
	default:
		n.Opened()
		h.rooms.report.Subscribed(h.handle(c), n.Filter, n.Group, n.ACK)
		g.moved(n)
		h.control(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: n.ID, Epoch: e.Epoch, Head: e.Head, Recovered: true})
		if c.Draining {
			g.pause(n)
		}
	}
}

// moved has presence look at the member's connection.
func (g *groups) moved(n *state.Member) {
	g.hub.rooms.presence.Moved(g.hub.handle(n.Owner), n.Filter, topic.IsFilter(n.Filter))
}

// ended takes the dispatcher's word that a membership has ended.
func (g *groups) ended(c *state.Conn, e exchange.GroupEnded) {
	if n := c.MemberByRef(e.Sub); n != nil {
		g.end(n, e.Code, e.Reason)
	}
}

// end ends a membership and says so.
func (g *groups) end(n *state.Member, why wirev1.Code, reason string) {
	g.leave(n)
	if n.Open() {
		g.hub.rooms.report.Unsubscribed(g.hub.handle(n.Owner), n.Filter, n.Group, why, reason)
	}
	g.hub.control(n.Owner, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: n.ID, Code: why, Reason: reason})
}

// leave gives everything back: nothing of the membership is sent any more.
func (g *groups) leave(n *state.Member) {
	h, c := g.hub, n.Owner
	h.addCost(int(c.Out.Len()))
	c.Out.DropSubscription(n.ID)
	n.Leave()
	g.count(n)
	g.setWaits(n, false)
	g.moved(n)
	h.conns.More(c).RemoveMember(n)
	h.rooms.permissions.Over(c.Slot, n.ID)
	c.Displaced()
	h.conns.Less(c)
	h.stats.Subscriptions--
	h.waker.Wake(c)
}

// pause has the member take nothing more.
func (g *groups) pause(n *state.Member) {
	n.Pause()
	g.count(n)
	g.setWaits(n, false)
}

// count brings what the connection counts up to date with the member's messages.
func (g *groups) count(n *state.Member) {
	unacked, late := n.Unacked(), n.Late()
	g.hub.stats.Unacked += int64(unacked) - int64(n.CountedUnacked)
	n.Owner.Unacked += unacked - n.CountedUnacked
	n.Owner.TimedOut += late - n.CountedLate
	g.hub.kept.Charge(n.Owner.Slot, n.Bytes()-n.CountedBytes)
	n.CountedUnacked, n.CountedLate, n.CountedBytes = unacked, late, n.Bytes()
}

// settled is count where messages may have left the window: others have room.
func (g *groups) settled(n *state.Member) {
	g.count(n)
	g.hub.waker.Wake(n.Owner)
}

// assigned takes what the dispatcher gave to a member.
func (g *groups) assigned(c *state.Conn, e exchange.Assigned) {
	h, n := g.hub, c.MemberByRef(e.Sub)
	if n == nil {
		h.stats.StaleEvents++
		return // it has left, which gave them back
	}
	h.addCost(len(e.Messages) * itemsPerUnit)
	for i, m := range e.Messages {
		if m.Seq == 0 {
			it := sendq.Assignment(m, n.ID, 0)
			h.fan.queueEphemeral(c, &it, wirev1.Overflow_OVERFLOW_DEFAULT)
		} else if due := n.Assign(m, e.Attempts[i], h.now, !c.Draining); due != 0 {
			h.wheel.Sooner(c.Slot, due)
		}
	}
	g.count(n)
	g.handOn(n, len(n.Live()))
}

// handOn queues what waits, as far as window and queue allow, at most so many messages, and reports
// how many.
func (g *groups) handOn(n *state.Member, most int) (done int) {
	h, c := g.hub, n.Owner
	if n.Runs = false; n.Ended() {
		return 0
	}
	live := n.Live()
	h.addCost(len(live))
	for i := range live {
		e := &live[i]
		if e.Message == nil || e.State != membership.Waiting {
			continue
		}
		if c.Phase != state.Open || c.Draining {
			return done
		}
		if n.ACK && c.Unacked >= c.Window || h.full(c, len(e.Message.Frame)) != wirev1.Code_CODE_OK {
			g.setWaits(n, true)
			return done
		}
		if done == most {
			g.setWaits(n, false)
			h.replay.enqueueGroup(n)
			return done
		}
		done++
		n.Queued(e)
		g.count(n)
		it := sendq.Assignment(e.Message, n.ID, e.Attempt)
		h.push(c, &it)
	}
	g.setWaits(n, false)
	return done
}

// setWaits notes whether the member waits; one whose client does not read waits in any case.
func (g *groups) setWaits(n *state.Member, waits bool) {
	switch {
	case !waits && n.Stalled():
		return
	case waits && !n.Waits:
		n.Owner.Waiting++
	case !waits && n.Waits:
		n.Owner.Waiting--
	}
	n.Waits = waits
}

// onSent is told when a message's bytes have left for the kernel.
func (g *groups) onSent(c *state.Conn, id uint32, m *exchange.Message) {
	n := c.MemberByID(id)
	if n == nil {
		return
	}
	if due := n.Sent(m, g.hub.now); due != 0 {
		g.hub.wheel.Sooner(c.Slot, due)
		return
	}
	g.settled(n)
}

// concerned are the memberships that an answer to messages may be about: the one that it names, or
// all. Each that is to be looked at counts.
func (g *groups) concerned(c *state.Conn, id uint32) []*state.Member {
	if id == 0 || len(c.Groups) == 0 {
		g.hub.addCost(len(c.Groups))
		return c.Groups
	}
	if g.named[0] = c.MemberByID(id); g.named[0] == nil {
		return nil
	}
	return g.named[:]
}

// ackEntry settles what an entry of an Ack covers and says how many messages that were. Members
// with nothing to be ACKed are passed over.
func (g *groups) ackEntry(c *state.Conn, a *ackEntry) (settled int) {
	for _, n := range g.concerned(c, a.Sub) {
		if n.CountedUnacked == 0 && n.CountedLate == 0 {
			continue
		}
		if now := n.Ack(&membership.Ack{Topic: a.Topic, Seq: a.Seq, Epoch: a.Epoch, Through: a.Through}); now > 0 {
			g.settled(n)
			settled += now
		}
	}
	return settled
}

// nack gives a message back.
func (g *groups) nack(n *state.Member, m *wirev1.Nack) (found bool) {
	if found = n.Nack(m.GetTopic(), m.GetSeq(), min(m.GetDelayMs(), maxNackDelay)); found {
		g.settled(n)
	}
	return found
}

// timers does what is due in a member, and says when the next thing is.
func (g *groups) timers(n *state.Member, next int64) int64 {
	next, unsent := n.Due(g.hub.now, next)
	if unsent {
		g.recall(n)
	}
	g.settled(n)
	if n.Failed() {
		g.hub.fail(n.Owner, wirev1.Code_CODE_ACK_TIMEOUT, "a window's worth of messages was not ACKed in time")
	}
	return next
}

// recall gives back what has been in the queue until it was due: the client does not read. Until it
// takes something the member gets nothing more.
func (g *groups) recall(n *state.Member) {
	h, c := g.hub, n.Owner
	q := &c.Out
	h.addCost(int(q.Len()))
	for i := range q.Len() {
		it := q.At(i)
		if it.Kind() != sendq.Message || it.Stream() != nil || it.Subscription() != n.ID || it.Message().Seq == 0 || q.Begun(i) {
			continue
		}
		if n.Recall(it.Message(), h.now) {
			q.Drop(i)
		}
	}
	q.Compact()
	n.Recalled(h.now)
	if !n.Stalled() && !c.Draining && (q.Len() > 0 || q.IsStalled() || c.Outside > 0) {
		n.Stall()
		g.setWaits(n, true)
	}
}

// goesOn has a member that waits go on, where there is room for it. One whose client reads again
// gets messages again; those that waited before are handed on first: it waits, still.
func (g *groups) goesOn(n *state.Member) bool {
	h, c := g.hub, n.Owner
	if n.Stalled() && h.drained(c) {
		n.Resume()
	}
	if !n.Waits || n.ACK && c.Unacked >= c.Window {
		return false
	}
	h.replay.enqueueGroup(n)
	return true
}
