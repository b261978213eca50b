package groups

import (
	"context"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/assignment"
)

// heldMark is stored with a group, as if it were a filter, for as long as it has a dispatcher: who
// finds it knows that the one before did not hand over.
const heldMark = "$held"

// Refs of Save.
const (
	refFirst = 1 // the first positions
	refLast  = 2 // the last
)

// dispatcher of one group, as long as this edge has the lease.
type dispatcher struct {
	of         *share
	core       *assignment.Core
	conn       exchange.Conn // as the mesh knows it
	key        string
	generation uint64
	began      time.Time // the zero of the core's time
	until      time.Time // the lease's end
	granted    *meshv1.AttachSessionResponse
	start      exchange.GroupStart
	// when the heads, which could not be had, are asked for again; zero: they are waited for, or
	// there
	joinAt  time.Time
	begun   bool // the core knows where it stands
	open    bool // and that is stored
	waiting []said
	empty   time.Time // since when it has no members
	saveAt  time.Time
	counted assignment.Stats
}

// said is what a member's edge said, and waits for the dispatcher to open.
type said struct {
	edge string
	op   *meshv1.GroupOp
}

func (d *dispatcher) since(now time.Time) time.Duration { return now.Sub(d.began) + 1 }

// begin makes a dispatcher of a lease. The first member's word counts for where a new group begins.
func (g *Groups) begin(s *share, granted *meshv1.AttachSessionResponse, asked time.Time) {
	g.lastSlot++
	d := &dispatcher{
		of: s, conn: exchange.Conn{Loop: g.cfg.Loop, Slot: g.lastSlot, Gen: 1}, generation: granted.GetGeneration(), granted: granted,
		began: g.now, until: asked.Add(g.cfg.Lease), empty: g.now,
	}
	var first *member
	for _, m := range s.members {
		if first == nil || m.id < first.id {
			first = m
		}
	}
	if first != nil {
		d.key, d.start = first.join.Key, first.join.Start
	}
	d.core = assignment.New(assignment.Config{User: User, Session: s.name, Key: d.key, MaxAttempts: g.cfg.MaxAttempts, Topics: topicsMost})
	g.dispatchers[d.conn.Slot], s.dispatcher = d, d
	g.wanting.Add(s.filter, d)
	g.cfg.Mesh.Hold(d.conn, User, s.name, d.generation)
	g.join(d)
}

// join asks for the group's messages, and for the heads of its topics.
func (g *Groups) join(d *dispatcher) {
	f := d.of.filter
	g.cfg.Mesh.Join(d.conn, 1, f, topic.IsFilter(f) || g.cfg.Durable(f), topicsMost)
}

// joined begins to dispatch from where the group stands.
func (g *Groups) joined(e exchange.Joined) {
	d := g.dispatchers[e.Conn.Slot]
	switch {
	case d == nil:
		return
	case e.Err != nil:
		why := code.From(e.Err)
		if code.Retryable(why.Code) {
			// under the same lease: another edge would ask the same store
			d.joinAt = g.now.Add(askAgain)
			return
		}
		g.endGroup(d, why.Code, why.Message)
		return
	}
	unclean := slices.Contains(d.granted.GetFilters(), heldMark)
	b := &assignment.Begin{
		Filter: d.of.filter, Heads: e.Heads, Resumed: slices.Contains(d.granted.GetFilters(), d.of.filter), Cursors: d.granted.GetCursors(),
		Start: d.start, Unclean: unclean,
	}
	if b.Resumed {
		b.Grace = int64(grace)
	}
	d.core.Advance(int64(d.since(g.now)), uint64(g.cfg.Clock(g.now).UnixMicro()))
	d.core.Begin(b)
	d.granted, d.begun = nil, true
	w := g.write(d)
	w.AddFilters = []string{d.of.filter, heldMark}
	g.cfg.Mesh.Save(d.conn, refFirst, w, true)
}

// saved opens a dispatcher once its first positions are stored: from here on members are answered
// and get messages.
func (g *Groups) saved(e exchange.Saved) {
	if e.Ref == refLast {
		for _, s := range g.groups {
			if s.releasing == e.Conn.Slot {
				s.releasing, s.askAt = 0, g.now
				g.tend(s)
				g.forget(s)
			}
		}
		return
	}
	d := g.dispatchers[e.Conn.Slot]
	switch {
	case d == nil || d.open:
	case e.Err != nil:
		g.release(d)
	default:
		d.open, d.empty = true, g.now
		waiting := d.waiting
		d.waiting = nil
		for _, o := range waiting {
			g.fromMember(o.edge, o.op)
		}
		g.busy[d] = true
	}
}

// fromMember takes what a member's edge says.
func (g *Groups) fromMember(edge string, op *meshv1.GroupOp) {
	var d *dispatcher
	if s := g.groups[op.GetGroup()+"/"+op.GetFilter()]; s != nil {
		d = s.dispatcher
	}
	id := assignment.MemberID{Edge: edge, ID: op.GetMember()}
	if d == nil {
		if op.GetJoin() != nil {
			g.send(edge, &meshv1.GroupOp{Group: op.GetGroup(), Filter: op.GetFilter(), Op: &meshv1.GroupOp_Gone{Gone: &meshv1.GroupGone{}}}, nil)
		}
		return
	}
	if !d.open { // in order: what a member has settled since its join must not be taken for held
		d.waiting = append(d.waiting, said{edge, op})
		return
	}
	switch o := op.GetOp().(type) {
	case *meshv1.GroupOp_Join:
		g.admit(d, edge, op)
	case *meshv1.GroupOp_Leave:
		d.core.Leave(id)
	case *meshv1.GroupOp_Settle:
		d.core.Settle(id, o.Settle)
	}
	g.busy[d] = true
}

// admit makes a member.
func (g *Groups) admit(d *dispatcher, edge string, op *meshv1.GroupOp) {
	j := op.GetJoin()
	answer := &meshv1.GroupJoined{}
	switch {
	case j.GetKey() == d.key:
		d.core.Join(assignment.MemberID{Edge: edge, ID: op.GetMember()}, j)
		answer.Epoch, answer.Head = d.core.Head(d.of.filter)
	case d.core.Members() == 0: // nobody is left who wanted the other key
		g.release(d)
		g.send(edge, &meshv1.GroupOp{Group: op.GetGroup(), Filter: op.GetFilter(), Op: &meshv1.GroupOp_Gone{Gone: &meshv1.GroupGone{}}}, nil)
		return
	default:
		answer.Code, answer.Reason = wirev1.Code_CODE_CONFLICT, "the group's members have another group_key"
	}
	g.send(edge, &meshv1.GroupOp{Group: op.GetGroup(), Filter: op.GetFilter(), Member: op.GetMember(), Op: &meshv1.GroupOp_Joined{Joined: answer}}, nil)
}

func (g *Groups) live(msgs []*exchange.Message) {
	for len(msgs) > 0 {
		n := 1
		for n < len(msgs) && msgs[n].Topic == msgs[0].Topic {
			n++
		}
		g.matched = g.wanting.Match(g.matched[:0], msgs[0].Topic)
		for _, d := range g.matched {
			if d.begun { // what came before is in the log, up to the heads
				d.core.Advance(int64(d.since(g.now)), uint64(g.cfg.Clock(g.now).UnixMicro()))
				d.core.Live(msgs[:n])
				g.busy[d] = true
			}
		}
		msgs = msgs[n:]
	}
}

func (g *Groups) ranged(r *exchange.Range) {
	g.matched = g.wanting.Match(g.matched[:0], r.Topic)
	for _, d := range g.matched {
		d.core.Range(r)
		g.busy[d] = true
	}
}

// takeOut does what a core decided.
func (g *Groups) takeOut(d *dispatcher) {
	if g.dispatchers[d.conn.Slot] != d || !d.begun {
		return
	}
	d.core.Advance(int64(d.since(g.now)), uint64(g.cfg.Clock(g.now).UnixMicro()))
	d.core.Pause(!d.open || !g.now.Before(d.until))
	out := d.core.Take()
	for _, r := range out.Reads {
		g.cfg.Mesh.Read(g.cfg.Loop, r.Topic, r.Epoch, r.From, 0, readBytes)
	}
	g.deliver(d, out.Assigned)
	g.count(d)
	if out.Over != wirev1.Code_CODE_OK {
		g.endGroup(d, out.Over, "the filter matches too many topics by now")
	}
}

// deliver sends each member what it was assigned, together.
func (g *Groups) deliver(d *dispatcher, all []assignment.Assignment) {
	first := map[assignment.MemberID]int{}
	var events []exchange.Assigned
	var to []assignment.MemberID
	for _, a := range all {
		i, ok := first[a.Member]
		if !ok {
			i = len(events)
			first[a.Member] = i
			events, to = append(events, exchange.Assigned{}), append(to, a.Member)
		}
		events[i].Messages, events[i].Attempts = append(events[i].Messages, a.Message), append(events[i].Attempts, a.Attempt)
	}
	for i, e := range events {
		if to[i].Edge != g.cfg.Edge {
			g.deliverTo(d, to[i], &e)
			continue
		}
		if m := g.byID[to[i].ID]; m != nil {
			e.Conn, e.Sub = m.conn, m.sub
			g.assigned(m, e)
		}
	}
}

// deliverTo sends messages to a member of another edge, in parts that fit into a frame.
func (g *Groups) deliverTo(d *dispatcher, to assignment.MemberID, e *exchange.Assigned) {
	part, size := &meshv1.GroupDeliver{}, 0
	flush := func() {
		if len(part.GetDeliveries()) > 0 {
			g.send(to.Edge, &meshv1.GroupOp{Group: d.of.group, Filter: d.of.filter, Member: to.ID, Op: &meshv1.GroupOp_Deliver{Deliver: part}}, nil)
		}
		part, size = &meshv1.GroupDeliver{}, 0
	}
	for i, m := range e.Messages {
		body := m.Body()
		if size += len(body) + len(m.Topic) + 64; size > frameBytes/2 {
			flush()
			size = len(body)
		}
		part.Deliveries = append(part.Deliveries, &meshv1.Delivery{Topic: m.Topic, Epoch: m.Epoch, Seq: m.Seq, ExpiresAt: m.ExpiresAt, Body: body})
		part.Attempts = append(part.Attempts, e.Attempts[i])
	}
	flush()
}

func (g *Groups) count(d *dispatcher) {
	s, o := d.core.Stats(), d.counted
	d.counted = s
	g.Stats.Assigned.Add(s.Assigned - o.Assigned)
	g.Stats.Redelivered.Add(s.Redelivered - o.Redelivered)
	g.Stats.DeadLetters.Add(s.DeadLetters - o.DeadLetters)
	g.Stats.Missed.Add(s.Missed - o.Missed)
	g.Stats.Expired.Add(s.Expired - o.Expired)
	g.Stats.NoMember.Add(s.NoMember - o.NoMember)
}

// write makes what is to be stored of a group.
func (g *Groups) write(d *dispatcher) *meshv1.SessionWrite {
	w := &meshv1.SessionWrite{User: User, Name: d.of.name, Generation: d.generation}
	w.Cursors, w.DeadLetters = d.core.Save(false)
	return w
}

func (g *Groups) tendDispatcher(d *dispatcher) {
	if !g.now.Before(d.until) {
		d.core.Pause(true)
	}
	if !d.joinAt.IsZero() && !g.now.Before(d.joinAt) {
		if len(d.of.members)+len(d.waiting) == 0 {
			g.release(d)
			return
		}
		d.joinAt = time.Time{}
		g.cfg.Mesh.Leave(g.cfg.Loop, d.of.filter)
		g.join(d)
	}
	if !d.open {
		return
	}
	if d.core.Changed() && !g.now.Before(d.saveAt) {
		d.saveAt = g.now.Add(saveEvery)
		g.cfg.Mesh.Save(d.conn, 0, g.write(d), true)
	}
	for _, ask := range d.core.Asks(int64(d.since(g.now))) {
		op := &meshv1.GroupOp_Ask{Ask: &meshv1.GroupAsk{Turn: ask.Turn}}
		g.send(ask.Member.Edge, &meshv1.GroupOp{Group: d.of.group, Filter: d.of.filter, Member: ask.Member.ID, Op: op}, nil)
	}
	if d.core.Members() > 0 {
		d.empty = g.now
	} else if g.now.Sub(d.empty) > emptyFor {
		g.release(d)
	}
}

// renew keeps the leases. It is asked for thrice in a lease's time.
func (g *Groups) renew() {
	if g.renewing || len(g.dispatchers) == 0 || g.now.Before(g.renewAt) {
		return
	}
	g.renewing = true
	req := &meshv1.RenewLeasesRequest{EdgeId: g.cfg.Edge, LeaseMs: uint32(g.cfg.Lease.Milliseconds())}
	var all []*dispatcher
	for _, d := range g.dispatchers {
		all = append(all, d)
		req.Leases = append(req.Leases, &meshv1.RenewLeasesRequest_Lease{User: User, Name: d.of.name, Generation: d.generation})
	}
	asked := g.now
	g.work.Go("edge-groups-renew", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, g.cfg.Lease/3)
		defer cancel()
		resp := g.cfg.Store.RenewLeases(ctx, req)
		g.ops.Do(func() { g.renewed(all, resp.GetCodes(), asked) })
	})
}

func (g *Groups) renewed(all []*dispatcher, codes []wirev1.Code, asked time.Time) {
	g.renewing = false
	g.renewAt = asked.Add(g.cfg.Lease / 3)
	for i, d := range all {
		switch {
		case g.dispatchers[d.conn.Slot] != d:
		case codes[i] == wirev1.Code_CODE_OK:
			d.until = asked.Add(g.cfg.Lease)
			g.busy[d] = true
		case codes[i] == wirev1.Code_CODE_SESSION_TAKEN_OVER, codes[i] == wirev1.Code_CODE_NOT_FOUND:
			g.lose(d)
		default:
			g.renewAt = g.now.Add(askAgain)
		}
	}
}

// detached says that a write was refused: another edge has the lease.
func (g *Groups) detached(e exchange.Detached) {
	if d := g.dispatchers[e.Conn.Slot]; d != nil {
		g.lose(d)
	}
}

// lose ends a dispatcher whose lease is another's: it stores nothing more.
func (g *Groups) lose(d *dispatcher) {
	g.Stats.Lost.Add(1)
	g.end(d, &meshv1.GroupGone{})
}

// release hands a group over: its positions are stored, and with them the lease ends.
func (g *Groups) release(d *dispatcher) {
	w := &meshv1.SessionWrite{User: User, Name: d.of.name, Generation: d.generation, Detach: true}
	if d.begun {
		w.Cursors, w.DeadLetters = d.core.Save(true)
		if d.core.Clean() {
			w.RemoveFilters = []string{heldMark}
		}
	}
	d.of.releasing = d.conn.Slot
	g.cfg.Mesh.Save(d.conn, refLast, w, true)
	g.end(d, &meshv1.GroupGone{})
}

// endGroup ends the group for its members, because it can't go on.
func (g *Groups) endGroup(d *dispatcher, why wirev1.Code, reason string) {
	g.cfg.Mesh.Save(d.conn, refLast, &meshv1.SessionWrite{User: User, Name: d.of.name, Generation: d.generation, Detach: true}, true)
	d.of.releasing = d.conn.Slot
	g.end(d, &meshv1.GroupGone{Code: why, Reason: reason})
}

// end tells every edge that has members, and forgets the dispatcher.
func (g *Groups) end(d *dispatcher, gone *meshv1.GroupGone) {
	s := d.of
	edges := map[string]bool{g.cfg.Edge: true}
	for _, e := range d.core.Edges() {
		edges[e] = true
	}
	for _, j := range d.waiting {
		edges[j.edge] = true
	}
	delete(g.dispatchers, d.conn.Slot)
	delete(g.busy, d)
	s.dispatcher = nil
	g.wanting.Remove(s.filter, d)
	g.cfg.Mesh.Leave(g.cfg.Loop, s.filter)
	for e := range edges {
		g.send(e, &meshv1.GroupOp{Group: s.group, Filter: s.filter, Op: &meshv1.GroupOp_Gone{Gone: gone}}, nil)
	}
}
