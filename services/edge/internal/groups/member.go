package groups

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/acked"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/assignment"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/pace"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
)

// share is one group with all that this edge has to do with it.
type share struct {
	name          string // of the session
	group, filter string
	payer         exchange.Conn      // for which it was made here
	origin        string             // the address that it counts for, or ""
	members       map[uint64]*member // here
	timed         pace.Timed[timed]
	// open is how many of them have joined, key is their group_key.
	open   int
	key    string
	at     string // the edge that dispatches; "": not known
	asking bool   // who does, or waiting to
	askAt  time.Time
	// the dispatcher here that has handed over, and that is not stored yet; 0: none
	releasing  uint32
	dispatcher *dispatcher
	forgotten  bool        // by the dispatcher, which is to hear of the members anew
	acked      acked.Group // not long ago, by members here
	forgetAt   time.Time   // when the oldest of them are forgotten
}

type memberKey struct {
	conn exchange.Conn
	sub  uint32
}

// member is a subscription of this edge.
type member struct {
	memberKey
	id     uint64
	of     *share
	join   *exchange.GroupJoin
	window uint32
	timed  pace.Timed[timed] // until its client has been told
	joined bool              // its client has been told
	// since is the generation of the dispatcher that made it a member first; 0: it is none yet. 1:
	// the dispatcher's edge was of a version that does not say.
	since uint64
	// introduced is the edge that was told of it last, as the one that dispatches.
	introduced string
	// has is what was assigned to it and is not settled, settled what the dispatcher was told and
	// may not have heard.
	has     map[message]held
	settled []*meshv1.GroupSettle
}

// settledMost bounds what a member remembers for a dispatcher that is away; beyond, messages come
// again.
const settledMost = 4096

type message struct {
	topic      string
	epoch, seq uint64
}

type held struct {
	m       *exchange.Message
	attempt uint32
	bytes   int // that it takes
}

// JoinGroup implements exchange.Groups.
func (g *Groups) JoinGroup(conn exchange.Conn, sub uint32, j *exchange.GroupJoin) {
	g.later(conn, func() {
		if err := g.admits(conn, j); err != nil {
			g.cfg.Mesh.Post(conn.Loop, exchange.GroupJoined{Conn: conn, Sub: sub, Err: err})
			return
		}
		g.lastID++
		s := g.share(j.Group, j.Filter, conn)
		if len(s.members) == 0 {
			g.pays(s, conn, j.Origin)
			g.cfg.Mesh.HasMembers(s.filter, true)
		}
		m := &member{memberKey: memberKey{conn, sub}, id: g.lastID, join: j, window: j.Window, has: map[message]held{}, of: s}
		m.timed.Of = m
		g.members[m.memberKey], g.byID[m.id], m.of.members[m.id] = m, m, m
		g.bounds.memory.Add(m.weight())
		g.due.Set(&m.timed, g.now.Add(joinPatience))
		g.introduce(m, nil)
		m.of.tend(g)
	})
}

// tend refuses a member that has waited for a dispatcher for too long.
func (m *member) tend(g *Groups) {
	g.refuse(m, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no edge can be the group's dispatcher now"))
}

func checkPositions(j *exchange.GroupJoin) error {
	named := make(map[string]bool, len(j.Start.Positions))
	for _, p := range j.Start.Positions {
		if err := exchange.CheckPosition(j.Filter, p); err != nil {
			return err
		}
		if named[p.GetTopic()] {
			return exchange.ErrTwoPositions
		}
		named[p.GetTopic()] = true
	}
	return nil
}

// PauseGroup implements exchange.Groups.
func (g *Groups) PauseGroup(conn exchange.Conn, sub uint32) {
	g.changeWindow(conn, sub, func(*member) uint32 { return 0 })
}

// ResumeGroup implements exchange.Groups.
func (g *Groups) ResumeGroup(conn exchange.Conn, sub uint32) {
	g.changeWindow(conn, sub, func(m *member) uint32 { return m.join.Window })
}

func (g *Groups) changeWindow(conn exchange.Conn, sub uint32, window func(*member) uint32) {
	g.ops.Do(func() {
		change := func() {
			if m := g.members[memberKey{conn, sub}]; m != nil {
				m.window = window(m)
				g.introduce(m, nil)
			}
		}
		if g.setup.Waits(conn) { // maybe for the member to be made
			g.setup.Push(conn, change)
			return
		}
		change()
	})
}

// LeaveGroup implements exchange.Groups.
func (g *Groups) LeaveGroup(conn exchange.Conn, sub uint32) {
	g.later(conn, func() {
		if m := g.members[memberKey{conn, sub}]; m != nil { // it was not refused
			g.drop(m)
		}
	})
}

// drop ends a member here.
func (g *Groups) drop(m *member) {
	delete(g.members, m.memberKey)
	delete(g.byID, m.id)
	delete(m.of.members, m.id)
	g.due.Set(&m.timed, time.Time{})
	for k := range m.has {
		m.hasNot(g, k)
	}
	m.keeps(g, nil)
	g.bounds.memory.Add(-m.weight())
	if m.joined {
		m.of.open--
	}
	if m.conn == m.of.payer { // its turn ends with it
		for _, o := range m.of.members {
			g.pays(m.of, o.conn, o.join.Origin)
			break
		}
	}
	if m.introduced != "" { // it may dispatch although this edge does not go by it now
		g.left(m.introduced, m.op(nil))
	}
	if len(m.of.members) == 0 {
		g.cfg.Mesh.HasMembers(m.of.filter, false)
	}
	g.forget(m.of)
}

// left tells an edge that the member that an op is about is none, or no longer.
func (g *Groups) left(edge string, op *meshv1.GroupOp) {
	g.send(edge, &meshv1.GroupOp{Group: op.GetGroup(), Filter: op.GetFilter(), Member: op.GetMember(), Op: &meshv1.GroupOp_Leave{Leave: &meshv1.GroupLeave{}}}, nil)
}

// SettleGroup implements exchange.Groups.
func (g *Groups) SettleGroup(all []exchange.GroupSettled) {
	g.ops.Do(func() {
		for i := range all {
			s := &all[i]
			if m := g.members[memberKey{s.Conn, s.Sub}]; m != nil {
				g.settle(m, s)
			}
		}
	})
}

func (g *Groups) settle(m *member, s *exchange.GroupSettled) {
	if m.of.forgotten {
		g.introduceAll(m.of)
	}
	m.hasNot(g, message{s.Message.Topic, s.Message.Epoch, s.Message.Seq})
	out := &meshv1.GroupSettle{Topic: s.Message.Topic, Epoch: s.Message.Epoch, Seq: s.Message.Seq, How: s.How, DelayMs: s.DelayMS}
	kept := m.settled
	if len(kept) >= settledMost {
		kept = kept[1:]
	}
	m.keeps(g, append(kept, out))
	if s.How == meshv1.GroupSettle_HOW_ACKED {
		g.remember(m.of, message{s.Message.Topic, s.Message.Epoch, s.Message.Seq})
	}
	if m.of.at != "" {
		g.send(m.of.at, m.op(&meshv1.GroupOp_Settle{Settle: out}), func() { m.told(g, out) })
	}
}

// told forgets what was settled up to s: the dispatcher has it.
func (m *member) told(g *Groups, s *meshv1.GroupSettle) {
	for i, o := range m.settled {
		if o == s {
			m.keeps(g, m.settled[i+1:])
			return
		}
	}
}

// keeps sets what the dispatcher may not have heard.
func (m *member) keeps(g *Groups, settled []*meshv1.GroupSettle) {
	g.bounds.memory.Add((len(settled) - len(m.settled)) * settledBytes)
	m.settled = settled
}

// hasNot notes that a message is not the member's any more.
func (m *member) hasNot(g *Groups, k message) {
	if h, ok := m.has[k]; ok {
		delete(m.has, k)
		g.bounds.memory.Add(-h.bytes)
	}
}

func (m *member) op(op isGroupOp) *meshv1.GroupOp {
	out := &meshv1.GroupOp{Group: m.of.group, Filter: m.of.filter, Member: m.id}
	switch op := op.(type) {
	case *meshv1.GroupOp_Settle:
		out.Op = op
	case *meshv1.GroupOp_Join:
		out.Op = op
	}
	return out
}

// isGroupOp is one of the messages of GroupOp.op.
type isGroupOp any

// before reports whether a member was one before another; of newcomers, whether it came first.
func (m *member) before(other *member) bool {
	if m.since == other.since {
		return m.id < other.id
	}
	return other.since == 0 || m.since != 0 && m.since < other.since
}

// introduce tells the dispatcher of a member, of all that it has, and of what was ACKed here.
func (g *Groups) introduce(m *member, seqs []*meshv1.GroupAcked) {
	if m.of.at == "" {
		return
	}
	m.introduced = m.of.at
	j := &meshv1.GroupJoin{Window: m.window, Key: m.join.Key, Held: m.held(), Settled: m.settled, Acked: seqs, Since: m.since}
	var last *meshv1.GroupSettle
	if n := len(m.settled); n > 0 {
		last = m.settled[n-1]
	}
	g.send(m.of.at, m.op(&meshv1.GroupOp_Join{Join: j}), func() { m.told(g, last) })
}

// held is what the member has, for a dispatcher.
func (m *member) held() (all []*meshv1.GroupHeld) {
	keys := assignment.KeysOf(m.join.Key)
	for k, h := range m.has {
		all = append(all, &meshv1.GroupHeld{Topic: k.topic, Epoch: k.epoch, Seq: k.seq, Attempt: h.attempt, Key: keys.Of(h.m)})
	}
	return all
}

func (g *Groups) share(name, filter string, payer exchange.Conn) *share {
	key := name + "/" + filter
	s := g.groups[key]
	if s == nil {
		s = &share{name: key, group: name, filter: filter, payer: payer, members: map[uint64]*member{}}
		s.timed.Of = s
		g.bounds.memory.Add(s.weight())
		g.groups[key] = s
	}
	return s
}

// forget drops a group that this edge has nothing to do with.
func (g *Groups) forget(s *share) {
	if len(s.members) == 0 && s.dispatcher == nil && !s.asking && s.releasing == 0 {
		g.acks.Drop(&s.acked)
		g.bounds.addresses.Remove(s.origin)
		g.due.Set(&s.timed, time.Time{})
		g.setAt(s, "")
		g.bounds.memory.Add(-s.weight())
		delete(g.groups, s.name)
	}
}

// tend has the dispatcher looked for where it is not known, and forgets old ACKs.
func (s *share) tend(g *Groups) {
	if g.groups[s.name] != s {
		return
	}
	g.forgetAcked(s)
	if s.seeks() && !g.now.Before(s.askAt) {
		s.asking = true
		g.ownerOf(s).questions.Push(s.payer, s)
	}
	g.planShare(s)
}

// seeks reports whether the dispatcher is to be looked for.
func (s *share) seeks() bool {
	return s.at == "" && !s.asking && s.releasing == 0 && len(s.members) > 0
}

// planShare has the share tended when that is due.
func (g *Groups) planShare(s *share) {
	var at time.Time
	if s.seeks() {
		at = s.askAt
		if at.Before(g.now) {
			at = g.now
		}
	}
	if s.acked.Len() > 0 {
		at = sooner(at, s.forgetAt)
	}
	g.due.Set(&s.timed, at)
}

// sooner is the earlier of two times; zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// leased takes the store's word on who dispatches.
func (g *Groups) leased(s *share, req *meshv1.AttachSessionRequest, resp *meshv1.AttachSessionResponse, err error, asked time.Time) {
	s.asking = false
	s.askAt = g.now.Add(askAgain)
	switch {
	case err != nil:
		g.cfg.Log.Debug("no lease of a group", "error", err)
	case !req.GetPeek() && resp.GetGeneration() != 0:
		g.Stats.Grants.Add(1)
		g.setAt(s, g.cfg.Edge)
		g.begin(s, resp, asked)
		if g.draining || len(s.members) == 0 {
			// It was asked for before. Where a new group begins is for a member to say.
			g.release(s.dispatcher)
			break
		}
		g.introduceAll(s)
	case resp.GetPreviousEdge() != "" && resp.GetPreviousEdge() != g.cfg.Edge && g.dead[resp.GetPreviousEdge()].IsZero():
		g.setAt(s, resp.GetPreviousEdge())
		g.introduceAll(s)
	}
	g.planShare(s)
	g.forget(s)
}

func (g *Groups) introduceAll(s *share) {
	s.forgotten = false
	seqs := s.acked.Seqs()
	for _, joined := range [...]bool{true, false} {
		// newcomers decide nothing for those that have joined
		for _, m := range s.members {
			if m.joined == joined {
				g.introduce(m, seqs)
				seqs = nil
			}
		}
	}
}

// refuse ends a member whose client has not been told that it has joined.
func (g *Groups) refuse(m *member, err error) {
	g.drop(m)
	g.cfg.Mesh.Post(m.conn.Loop, exchange.GroupJoined{Conn: m.conn, Sub: m.sub, Err: err})
}

// fromDispatcher takes what the edge that dispatches for a group says.
func (g *Groups) fromDispatcher(edge string, op *meshv1.GroupOp) {
	m := g.byID[op.GetMember()]
	if m == nil && (op.GetDeliver() != nil || op.GetAsk() != nil) {
		g.left(edge, op) // as it was told before, or would be if that had not been lost
		return
	}
	s := g.groups[op.GetGroup()+"/"+op.GetFilter()]
	if s == nil || s.at != edge {
		return
	}
	switch o := op.GetOp().(type) {
	case *meshv1.GroupOp_Gone:
		g.gone(s, o.Gone)
	case *meshv1.GroupOp_Joined:
		if m != nil {
			g.answered(m, o.Joined)
		}
	case *meshv1.GroupOp_Deliver:
		g.delivered(m, o.Deliver)
	case *meshv1.GroupOp_Ask:
		if m != nil {
			g.send(edge, m.op(&meshv1.GroupOp_Join{Join: &meshv1.GroupJoin{Window: m.window, Key: m.join.Key, Held: m.held(), Asked: o.Ask.GetTurn(), Since: m.since}}), nil)
		}
	}
}

func (g *Groups) answered(m *member, j *meshv1.GroupJoined) {
	switch {
	case j.GetCode() != wirev1.Code_CODE_OK && m.joined:
		g.cfg.Mesh.Post(m.conn.Loop, exchange.GroupEnded{Conn: m.conn, Sub: m.sub, Code: j.GetCode(), Reason: j.GetReason()})
		if m.of.at != "" { // the group goes on without it
			g.drop(m)
		}
	case j.GetCode() != wirev1.Code_CODE_OK:
		why := code.New(j.GetCode(), j.GetReason())
		if why.Code == wirev1.Code_CODE_OVERLOADED {
			why.RetryAfter = fullFor
		}
		g.refuse(m, why)
	case !m.joined:
		m.joined, m.since = true, max(j.GetGeneration(), 1)
		m.of.open++
		m.of.key = m.join.Key
		g.due.Set(&m.timed, time.Time{})
		g.cfg.Mesh.Post(m.conn.Loop, exchange.GroupJoined{Conn: m.conn, Sub: m.sub, Epoch: j.GetEpoch(), Head: j.GetHead()})
	}
}

// delivered hands on what another edge assigned.
func (g *Groups) delivered(m *member, d *meshv1.GroupDeliver) {
	e := exchange.Assigned{Conn: m.conn, Sub: m.sub}
	for i, one := range d.GetDeliveries() {
		if i == len(d.GetAttempts()) {
			break
		}
		part := history.Parts{Topic: one.GetTopic(), Epoch: one.GetEpoch(), Seq: one.GetSeq(), ExpiresAt: one.GetExpiresAt(), Body: one.GetBody()}
		if e.Messages = history.Encode(e.Messages, []history.Parts{part}, g.cfg.Traced); len(e.Messages) > len(e.Attempts) {
			e.Attempts = append(e.Attempts, d.GetAttempts()[i])
		}
	}
	g.assigned(m, e)
}

func (g *Groups) assigned(m *member, e exchange.Assigned) {
	for i, msg := range e.Messages {
		if msg.Seq > 0 {
			k := message{msg.Topic, msg.Epoch, msg.Seq}
			m.hasNot(g, k)
			h := held{msg, e.Attempts[i], hasBytes}
			if m.of.dispatcher == nil { // which counts it, where it is here
				h.bytes += len(msg.Frame)
			}
			g.bounds.memory.Add(h.bytes)
			m.has[k] = h
		}
	}
	g.cfg.Mesh.Post(m.conn.Loop, e)
}

// gone has another dispatcher found, or ends the group.
func (g *Groups) gone(s *share, o *meshv1.GroupGone) {
	g.setAt(s, "")
	s.askAt = g.now
	if o.GetCode() == wirev1.Code_CODE_OK {
		s.tend(g)
		return
	}
	for _, m := range s.members {
		g.answered(m, &meshv1.GroupJoined{Code: o.GetCode(), Reason: o.GetReason()})
	}
}
