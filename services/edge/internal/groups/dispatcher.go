package groups

import (
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/assignment"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/pace"
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
	// oldest is the lowest generation under which a member with the key became one.
	oldest  uint64
	began   time.Time // the zero of the core's time
	until   time.Time // the lease's end
	granted *meshv1.AttachSessionResponse
	start   exchange.GroupStart
	// when the heads, which could not be had, are asked for again; zero: they are waited for, or
	// there
	joinAt time.Time
	// answered: the heads came, and are taken in their turn
	answered bool
	begun    bool // the core knows where it stands
	open     bool // and that is stored
	waiting  []said
	timed    pace.Timed[timed]
	renewal  pace.Timed[*dispatcher] // at renewAt
	departed []string                // edges whose members of before are yet to be ended
	early    []*exchange.Message     // came behind the heads, which are not taken yet
	hears    *audience
	place    int       // in hears.all
	busy     bool      // in Groups.busy
	hungry   bool      // in bounds.hungry
	weighs   int       // as counted in bounds.memory
	empty    time.Time // since when it has no members; zero: it has
	renewAt  time.Time // zero: it is being renewed
	savedAt  time.Time // last
	saveAt   time.Time // zero: nothing has changed
	auditAt  time.Time // zero: it has no members
	counted  assignment.Stats
}

// said is what a member's edge said, and waits for the dispatcher to open.
type said struct {
	edge string
	op   *meshv1.GroupOp
}

var errOtherKey = code.New(wirev1.Code_CODE_CONFLICT, "the group's members have another group_key")

func (d *dispatcher) since(now time.Time) time.Duration { return now.Sub(d.began) + 1 }

// begin makes a dispatcher of a lease. The first member's word counts for where a new group begins.
func (g *Groups) begin(s *share, granted *meshv1.AttachSessionResponse, asked time.Time) {
	g.lastSlot++
	d := &dispatcher{
		of: s, conn: exchange.Conn{Loop: g.cfg.Loop, Slot: g.lastSlot, Gen: 1}, generation: granted.GetGeneration(), oldest: granted.GetGeneration(), granted: granted,
		began: g.now, until: asked.Add(g.cfg.Lease), renewAt: g.renewAt(asked),
	}
	d.timed.Of, d.renewal.Of = d, d
	var first *member
	for _, m := range s.members {
		// who is a member already says what the group's key is, whatever newcomers want
		if first == nil || m.before(first) {
			first = m
		}
	}
	if first != nil {
		d.key, d.start = first.join.Key, first.join.Start
	}
	d.core = assignment.New(assignment.Config{User: User, Session: s.name, Key: d.key, MaxAttempts: g.cfg.MaxAttempts, Topics: topicsMost, Full: g.bounds.memory.Full})
	g.dispatchers[d.conn.Slot], s.dispatcher = d, d
	g.hearing.add(d)
	g.weigh(d)
	g.plan(d)
	g.cfg.Mesh.Hold(d.conn, User, s.name, d.generation)
	g.join(d)
}

// join asks for the group's messages, and for the heads of its topics.
func (g *Groups) join(d *dispatcher) {
	f := d.of.filter
	g.cfg.Mesh.Join(d.conn, 1, f, topic.IsFilter(f) || g.cfg.Durable(f), topicsMost)
}

// joined begins to dispatch from where the group stands.
func (g *Groups) joined(d *dispatcher, e exchange.Joined) {
	early := d.early
	d.answered, d.early = false, nil
	if e.Err != nil {
		why := code.From(e.Err)
		if code.Retryable(why.Code) {
			// under the same lease: another edge would ask the same store
			d.joinAt = g.now.Add(askAgain)
			g.plan(d)
			return
		}
		g.endGroup(d, why.Code, why.Message)
		return
	}
	if !g.fits(len(e.Heads)) {
		g.Stats.Overloaded.Add(1)
		g.endGroup(d, wirev1.Code_CODE_OVERLOADED, fmt.Sprintf("there is no memory for the group's %d topics", len(e.Heads)))
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
	g.advance(d)
	d.core.Begin(b)
	g.weigh(d)
	d.granted, d.begun = nil, true
	w := g.write(d)
	w.AddFilters = []string{d.of.filter, heldMark}
	g.cfg.Mesh.Save(d.conn, refFirst, w, true)
	if len(early) > 0 {
		g.handTo(d, early)
	}
}

// saved takes the answer to a Save.
func (g *Groups) saved(e exchange.Saved) {
	if e.Ref != refLast {
		g.ofDispatcher(e.Conn, func(*dispatcher) {}, func(d *dispatcher) { g.stored(d, e.Err) })
		return
	}
	g.ops.Do(func() {
		s := g.releasing[e.Conn.Slot]
		if s == nil {
			return
		}
		delete(g.releasing, e.Conn.Slot)
		s.releasing, s.askAt = 0, g.now
		g.planShare(s)
		g.forget(s)
	})
}

// stored opens a dispatcher once its first positions are stored: from here on members are answered
// and get messages.
func (g *Groups) stored(d *dispatcher, err error) {
	switch {
	case d.open:
	case err != nil:
		g.release(d)
	default:
		d.open = true
		waiting := d.waiting
		if d.isLate(waiting) {
			g.giveWay(d)
			return
		}
		d.waiting = nil
		for _, o := range d.ownFirst(waiting) {
			g.fromMember(o.edge, o.op)
		}
		for _, o := range waiting { // a Settle says nothing of whether its edge has members
			if g.dispatchers[d.conn.Slot] == d {
				g.meets(d, o.edge, d.core.HasEdge(o.edge))
			}
		}
		g.isBusy(d)
	}
}

// ownFirst are words with those first whose members want the dispatcher's key: it is nobody else's
// for as long as one of them does. The words of one member keep their order.
func (d *dispatcher) ownFirst(words []said) []said {
	other := map[assignment.MemberID]bool{}
	for _, o := range words {
		if j := o.op.GetJoin(); j != nil && j.GetKey() != d.key {
			other[assignment.MemberID{Edge: o.edge, ID: o.op.GetMember()}] = true
		}
	}
	if len(other) == 0 {
		return words
	}
	var own, rest []said
	for _, o := range words {
		if other[assignment.MemberID{Edge: o.edge, ID: o.op.GetMember()}] {
			rest = append(rest, o)
		} else {
			own = append(own, o)
		}
	}
	return append(own, rest...)
}

// isLate reports whether somebody who waits became a member before all who want the dispatcher's
// key, and wants another one.
func (d *dispatcher) isLate(words []said) bool {
	own, other := d.oldest, d.oldest
	for _, o := range words {
		j := o.op.GetJoin()
		switch since := j.GetSince(); {
		case since == 0:
		case j.GetKey() == d.key:
			own = min(own, since)
		default:
			other = min(other, since)
		}
	}
	return other < own
}

// giveWay ends those who want the dispatcher's key, and hands the group over: others, who want
// another one, were its members before. The dispatcher was given its lease for a newcomer, while
// their edges had not asked for it yet.
func (g *Groups) giveWay(d *dispatcher) {
	for _, id := range d.core.MemberIDs() {
		g.refuseKey(d, id)
	}
	for _, o := range d.waiting {
		if j := o.op.GetJoin(); j != nil && j.GetKey() == d.key {
			g.refuseKey(d, assignment.MemberID{Edge: o.edge, ID: o.op.GetMember()})
		}
	}
	g.release(d)
}

// refuseKey tells a member that others, who stay, want another key.
func (g *Groups) refuseKey(d *dispatcher, id assignment.MemberID) {
	answer := &meshv1.GroupJoined{Code: errOtherKey.Code, Reason: errOtherKey.Message}
	g.send(id.Edge, &meshv1.GroupOp{Group: d.of.group, Filter: d.of.filter, Member: id.ID, Op: &meshv1.GroupOp_Joined{Joined: answer}}, nil)
}

// wait keeps a word for when the dispatcher is open. Who leaves before has not been.
func (d *dispatcher) wait(edge string, op *meshv1.GroupOp) {
	if op.GetLeave() == nil {
		d.waiting = append(d.waiting, said{edge, op})
		return
	}
	d.waiting = slices.DeleteFunc(d.waiting, func(o said) bool {
		return o.edge == edge && o.op.GetMember() == op.GetMember() && o.op.GetSettle() == nil
	})
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
	g.depart(d, edge)
	if !d.open { // in order: what a member has settled since its join must not be taken for held
		d.wait(edge, op)
		g.meets(d, edge, true)
		return
	}
	switch o := op.GetOp().(type) {
	case *meshv1.GroupOp_Join:
		g.admit(d, edge, op)
	case *meshv1.GroupOp_Leave:
		d.core.Leave(id)
	case *meshv1.GroupOp_Settle:
		d.core.Settle(id, o.Settle)
		g.isBusy(d)
		return
	}
	if g.dispatchers[d.conn.Slot] == d { // it was not released
		g.meets(d, edge, d.core.HasEdge(edge))
		g.isBusy(d)
	}
}

// admit makes a member. Of members with different keys those stay who have been members for
// longest. Who does not say since when counts as a newcomer, and newcomers end nobody.
func (g *Groups) admit(d *dispatcher, edge string, op *meshv1.GroupOp) {
	id := assignment.MemberID{Edge: edge, ID: op.GetMember()}
	j := op.GetJoin()
	since := j.GetSince()
	switch {
	case j.GetKey() == d.key:
		if since > 0 {
			d.oldest = min(d.oldest, since)
		}
		d.core.Join(id, j)
		if len(j.GetHeld()) > 0 {
			d.auditAt = sooner(d.auditAt, g.now.Add(time.Duration(assignment.AskAfter)))
		}
		answer := &meshv1.GroupJoined{Generation: d.generation}
		answer.Epoch, answer.Head = d.core.Head(d.of.filter)
		g.send(edge, &meshv1.GroupOp{Group: op.GetGroup(), Filter: op.GetFilter(), Member: op.GetMember(), Op: &meshv1.GroupOp_Joined{Joined: answer}}, nil)
	case d.core.Members() == 0, since > 0 && since < d.oldest:
		// nobody is left who wanted the other key, or is to be
		g.giveWay(d)
		g.send(edge, &meshv1.GroupOp{Group: op.GetGroup(), Filter: op.GetFilter(), Op: &meshv1.GroupOp_Gone{Gone: &meshv1.GroupGone{}}}, nil)
	default:
		g.refuseKey(d, id)
	}
}

// advance tells the core the time. Without a lease, or before it is open, nothing is assigned.
func (g *Groups) advance(d *dispatcher) {
	d.core.Pause(!d.open || !g.now.Before(d.until))
	d.core.Advance(int64(d.since(g.now)), uint64(g.cfg.Clock(g.now).UnixMicro()))
}

// isBusy has what came of it taken out, in its turn.
func (g *Groups) isBusy(d *dispatcher) {
	if !d.busy {
		d.busy = true
		g.busy.Push(d.of.payer, d)
	}
}

// takeOut does what a core decided.
func (g *Groups) takeOut(d *dispatcher) {
	if g.dispatchers[d.conn.Slot] != d || !d.begun {
		return
	}
	for len(d.departed) > 0 {
		g.depart(d, d.departed[0])
	}
	g.advance(d)
	out := d.core.Take()
	for _, r := range out.Reads {
		g.read(d, logRange{r.Topic, r.From}, r.Epoch)
	}
	if len(out.Assigned) > 0 {
		d.auditAt = sooner(d.auditAt, g.now.Add(time.Duration(assignment.AskAfter)))
		g.deliver(d, out.Assigned)
	}
	g.count(d)
	g.weigh(d)
	if out.Over != wirev1.Code_CODE_OK {
		g.endGroup(d, out.Over, "the filter matches too many topics by now")
		return
	}
	g.plan(d)
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

// tend does what is due.
func (d *dispatcher) tend(g *Groups) {
	if g.dispatchers[d.conn.Slot] != d {
		return
	}
	due := func(at time.Time) bool { return !at.IsZero() && !g.now.Before(at) }
	if due(d.joinAt) {
		if len(d.of.members)+len(d.waiting) == 0 {
			g.release(d)
			return
		}
		d.joinAt = time.Time{}
		g.cfg.Mesh.Leave(g.cfg.Loop, d.of.filter)
		g.join(d)
	}
	if due(d.saveAt) {
		d.savedAt = g.now
		g.cfg.Mesh.Save(d.conn, 0, g.write(d), true)
	}
	if due(d.auditAt) {
		g.audit(d)
	}
	if d.open && d.core.Members() == 0 && !d.empty.IsZero() && due(d.empty.Add(emptyFor)) {
		g.release(d)
		return
	}
	if at := d.coreDue(); due(at) {
		g.isBusy(d)
	}
	g.plan(d)
}

// audit asks members what they have.
func (g *Groups) audit(d *dispatcher) {
	asks, again := d.core.Asks(int64(d.since(g.now)))
	d.auditAt = time.Time{}
	if again > 0 {
		d.auditAt = d.at(again)
	}
	for _, ask := range asks {
		op := &meshv1.GroupOp_Ask{Ask: &meshv1.GroupAsk{Turn: ask.Turn}}
		g.send(ask.Member.Edge, &meshv1.GroupOp{Group: d.of.group, Filter: d.of.filter, Member: ask.Member.ID, Op: op}, nil)
	}
}

// coreDue is when the core has something to do; zero: it has nothing.
func (d *dispatcher) coreDue() time.Time {
	if at := d.core.Next(); d.begun && at > 0 {
		return d.at(at)
	}
	return time.Time{}
}

// at is what since made a time of the core of.
func (d *dispatcher) at(core int64) time.Time { return d.began.Add(time.Duration(core) - 1) }

// plan has the dispatcher tended when the next thing is due. It is called after everything that
// changes what that is.
func (g *Groups) plan(d *dispatcher) {
	if g.dispatchers[d.conn.Slot] != d {
		return
	}
	g.leases.Set(&d.renewal, d.renewAt)
	at := d.joinAt
	if !d.busy { // who is busy is planned after its turn
		at = sooner(at, d.coreDue())
	}
	switch {
	case !d.open || !d.core.Changed():
		d.saveAt = time.Time{}
	case d.saveAt.IsZero():
		if d.saveAt = d.savedAt.Add(saveEvery); d.saveAt.Before(g.now.Add(tick)) {
			d.saveAt = g.now.Add(tick)
		}
	}
	at = sooner(at, d.saveAt)
	switch {
	case !d.open:
	case d.core.Members() > 0:
		if d.empty = (time.Time{}); d.auditAt.IsZero() {
			d.auditAt = g.now.Add(time.Duration(assignment.AskAfter))
		}
		at = sooner(at, d.auditAt)
	default:
		if d.auditAt = (time.Time{}); d.empty.IsZero() {
			d.empty = g.now
		}
		at = sooner(at, d.empty.Add(emptyFor))
	}
	g.due.Set(&d.timed, at)
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
	g.releases(d)
	g.cfg.Mesh.Save(d.conn, refLast, w, true)
	g.end(d, &meshv1.GroupGone{})
}

// endGroup ends the group for its members, because it can't go on.
func (g *Groups) endGroup(d *dispatcher, why wirev1.Code, reason string) {
	g.releases(d)
	g.cfg.Mesh.Save(d.conn, refLast, &meshv1.SessionWrite{User: User, Name: d.of.name, Generation: d.generation, Detach: true}, true)
	g.end(d, &meshv1.GroupGone{Code: why, Reason: reason})
}

// releases notes that a dispatcher's last positions are on their way.
func (g *Groups) releases(d *dispatcher) {
	d.of.releasing = d.conn.Slot
	g.releasing[d.conn.Slot] = d.of
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
	s.dispatcher = nil
	g.due.Set(&d.timed, time.Time{})
	g.leases.Set(&d.renewal, time.Time{})
	g.hearing.remove(d)
	g.bounds.memory.Add(-d.weighs)
	g.cfg.Mesh.Leave(g.cfg.Loop, s.filter)
	for e := range edges {
		g.meets(d, e, false)
		g.send(e, &meshv1.GroupOp{Group: s.group, Filter: s.filter, Op: &meshv1.GroupOp_Gone{Gone: gone}}, nil)
	}
}
