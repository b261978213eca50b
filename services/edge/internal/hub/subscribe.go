package hub

import (
	"cmp"
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// sub is one subscription of one connection. It lies in the hub's slab: lists that may outlive it hold a subRef.
type sub struct {
	c        *conn
	topic    *topicState // without wildcards
	wild     *filter     // with
	*pending             // nil once it is open
	gen      uint32
	id       uint32 // the client's
	ref      uint32 // names it to the mesh; never used twice on a connection
	at       uint32 // in filter.subs, with wildcards
	kind     trackKind
	overflow wirev1.Overflow
	ack      bool
	wildcard bool
	active   bool // it has its tracks
	open     bool // Subscribed was sent
	headless bool // it does not know the heads of its topics, and begins with what comes first
	dead     bool
	window   uint32
	topics   uint32 // tracks at topics that it did not name
}

// pending is what a subscription has until it is open.
type pending struct {
	start  *start // until it begins
	answer *wirev1.Subscribed
}

// filter that the client named.
func (s *sub) filter() string {
	if s.wildcard {
		return s.wild.name
	}
	return s.topic.name
}

// subRef finds a subscription, or nil once it is gone.
type subRef struct {
	s   *sub
	gen uint32
}

func (s *sub) handle() subRef { return subRef{s, s.gen} }

func (r subRef) get() *sub {
	if r.s == nil || r.s.gen != r.gen {
		return nil
	}
	return r.s
}

// begun gives back what was needed until the subscription was open.
func (h *Hub) begun(s *sub) {
	if s.pending != nil {
		h.pendings.Give(s.pending)
		s.pending = nil
	}
}

// subs are the connection's subscriptions.
func (c *conn) subs() []*sub {
	switch {
	case c.manySubs != nil:
		return c.manySubs
	case c.oneSub[0] != nil:
		return c.oneSub[:]
	}
	return nil
}

func (h *Hub) addSub(c *conn, s *sub) {
	if c.manySubs == nil && c.oneSub[0] == nil {
		c.oneSub[0] = s
		return
	}
	more := h.more(c)
	if more.manySubs == nil {
		more.manySubs, c.oneSub[0] = []*sub{c.oneSub[0]}, nil
	}
	more.manySubs = append(more.manySubs, s)
	switch {
	case more.byID != nil:
		more.byID[s.id] = s
	case len(more.manySubs) > manyTracks:
		more.byID = map[uint32]*sub{}
		for _, s := range more.manySubs {
			more.byID[s.id] = s
		}
	}
}

// subByRef finds what the mesh means; subscriptions stand in the order of their refs.
func (c *conn) subByRef(ref uint32) (at int, s *sub) {
	all := c.subs()
	at, ok := slices.BinarySearchFunc(all, ref, func(s *sub, ref uint32) int { return cmp.Compare(s.ref, ref) })
	if !ok {
		return at, nil
	}
	return at, all[at]
}

func (h *Hub) removeSub(c *conn, s *sub) {
	if c.oneSub[0] == s {
		c.oneSub[0] = nil
		return
	}
	more := h.more(c)
	delete(more.byID, s.id)
	i, _ := c.subByRef(s.ref)
	if more.manySubs = slices.Delete(more.manySubs, i, i+1); len(more.manySubs) == 0 {
		more.manySubs, more.byID = nil, nil
		h.less(c)
	}
}

// bounded says whether it may match a limited number of topics.
func (s *sub) bounded() bool { return s.wildcard && (s.ack || s.kind != kindPlain) }

func (c *conn) subByID(id uint32) *sub {
	if c.byID != nil {
		return c.byID[id]
	}
	for _, s := range c.subs() {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (h *Hub) subscribe(c *conn, m *wirev1.Subscribe) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.checkSubscribe(c, m); why != nil {
		h.refuse(c, m.GetId(), why)
		return
	}
	c.nextRef++
	s := h.subSlab.Take()
	s.c, s.id, s.ref, s.overflow, s.ack = c, m.GetId(), c.nextRef, m.GetOverflow(), m.GetAck()
	s.gen, s.wildcard = h.nextGen(), topic.IsFilter(m.GetFilter())
	s.pending = h.pendings.Take()
	s.start = startOf(m)
	if w := m.GetReceiveWindow(); w > 0 && w < c.window {
		s.window = w
	}
	s.kind = s.start.kind()
	h.addSub(c, s)
	h.stats.Subscriptions++
	heads, limit := true, h.lim.WildcardTopics
	if s.wildcard {
		h.addWild(s, m.GetFilter())
	} else {
		ts := h.topic(m.GetFilter())
		ts.exact++
		s.topic = ts
		heads, limit = h.policy(ts).Durable, 0
	}
	h.mesh.Join(h.handle(c), s.ref, s.filter(), heads, limit)
}

func (h *Hub) checkSubscribe(c *conn, m *wirev1.Subscribe) *code.Error {
	invalid := func(text string) *code.Error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, text) }
	unsupported := func(text string) *code.Error { return code.New(wirev1.Code_CODE_UNSUPPORTED, text) }
	switch {
	case c.inUse(m.GetId()):
		return invalid("the id is in use")
	case m.GetGroup() != "":
		return unsupported("groups are not supported")
	case m.GetWhere() != "":
		return unsupported("content filters are not supported")
	case m.GetRankTopK() != 0:
		return unsupported("ranked delivery is not supported")
	case m.GetNoEcho():
		return unsupported("no_echo is not supported")
	case len(c.subs()) >= h.lim.Subscriptions:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "the connection has as many subscriptions as it may")
	case c.draining:
		return code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")
	}
	if err := topic.CheckFilter(m.GetFilter()); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	wildcard := topic.IsFilter(m.GetFilter())
	switch {
	case m.GetStart() < 0 || m.GetStart() > wirev1.Start_START_SESSION:
		return invalid("there is no such start")
	case m.GetOverflow() < 0 || m.GetOverflow() > wirev1.Overflow_OVERFLOW_DISCONNECT:
		return invalid("there is no such overflow")
	case m.GetStart() == wirev1.Start_START_SESSION && c.sess == nil:
		return invalid("Hello named no session")
	case m.GetStart() == wirev1.Start_START_AFTER_SEQ && wildcard && m.GetSeq() > 0 && len(m.GetPositions()) == 0:
		return invalid("a filter with wildcards is resumed by positions")
	case len(m.GetPositions()) > h.lim.WildcardTopics:
		return code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "more positions than topics that a filter may match")
	case m.GetOverflow() == wirev1.Overflow_OVERFLOW_DROP_OLDEST && (m.GetAck() || m.GetStart() == wirev1.Start_START_SESSION) &&
		(wildcard || h.cfg.PolicyFor(m.GetFilter()).Durable):
		return unsupported("nothing is dropped on a durable topic with ack or a session")
	}
	for _, p := range m.GetPositions() {
		if why := checkTopic(p.GetTopic()); why != nil {
			return why
		}
		if !topic.Match(m.GetFilter(), p.GetTopic()) {
			return invalid("a position's topic does not match the filter")
		}
	}
	return nil
}

// inUse says whether an id stands for something that is not over.
func (c *conn) inUse(id uint32) bool { return c.subByID(id) != nil || slices.Contains(c.pubs, id) }

// joined goes on with a subscription: routers know of it, and these are its heads.
func (h *Hub) joined(c *conn, e exchange.Joined) {
	_, s := c.subByRef(e.Sub)
	if s == nil || s.dead || s.pending == nil || s.start == nil {
		h.stats.StaleEvents++
		return
	}
	switch {
	case e.Err != nil && s.wildcard && !s.bounded() && !s.headless:
		// Plain live subscriptions go on without heads: too many topics to name, or no store to ask.
		h.mesh.Leave(h.cfg.Loop, s.filter())
		s.headless = true
		h.mesh.Join(h.handle(c), s.ref, s.filter(), false, 0)
	case e.Err != nil:
		h.refuseSub(s, e.Err)
	default:
		s.start.heads = e.Heads
		h.inbox.push(inbound{start: &activation{sub: s.handle()}})
	}
}

// refuseSub ends a subscription that was never open.
func (h *Hub) refuseSub(s *sub, err error) {
	if s.dead {
		return
	}
	s.dead, s.active = true, false
	h.jobs.push(&ending{sub: s.handle(), at: len(s.c.tracks()), refused: code.From(err)})
}

// forgetSub takes a subscription without tracks out of every list.
func (h *Hub) forgetSub(s *sub) {
	name := s.filter()
	h.begun(s)
	h.removeSub(s.c, s)
	if s.wildcard {
		h.dropWild(s)
	} else {
		s.topic.exact--
		h.letGoTopic(s.topic)
	}
	h.stats.Subscriptions--
	*s = sub{}
	h.subSlab.Free(s)
	h.mesh.Leave(h.cfg.Loop, name)
}

func (h *Hub) unsubscribe(c *conn, m *wirev1.Unsubscribe) {
	s := c.subByID(m.GetId())
	switch {
	case m.GetId() == 0:
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
	case s == nil || s.dead:
		h.refuse(c, m.GetId(), code.New(wirev1.Code_CODE_NOT_FOUND, "there is no such subscription"))
	default:
		h.endSub(s, wirev1.Code_CODE_OK, "")
	}
}

// endSub takes a subscription apart, some tracks at a time, and says so at the end.
func (h *Hub) endSub(s *sub, why wirev1.Code, reason string) {
	if s.dead {
		return
	}
	s.dead, s.active = true, false
	h.jobs.push(&ending{sub: s.handle(), at: len(s.c.tracks()), why: why, reason: reason})
}

type ending struct {
	sub     subRef
	at      int
	why     wirev1.Code
	reason  string
	refused *code.Error // instead of why, where it was never open
	topics  []string    // that the session has no cursor for any more
}

func (j *ending) step(h *Hub) bool {
	s := j.sub.get()
	if s == nil || s.c.state != stateOpen {
		return true // its connection is taken apart as a whole
	}
	c := s.c
	all := c.tracks()
	if !s.wildcard { // it has tracks at one topic alone
		all = slices.Clone(h.tracksOf(c, s.topic))
	}
	j.at = min(j.at, len(all))
	for n := 0; j.at > 0 && n < teardownSlice; n++ {
		j.at--
		t := all[j.at]
		if !t.has(s) || h.unshare(t, s) {
			continue
		}
		if t.kind == kindSession && j.refused == nil {
			j.topics = append(j.topics, t.topic.name)
			if t.cur != nil {
				c.sess.cursors[t.topic.name] = h.encodeCursor(t)
				h.trackmore(t).cur = nil
			}
		}
		h.dropTrack(t)
	}
	if j.at > 0 {
		return false
	}
	id, kind, name := s.id, s.kind, s.filter()
	h.forgetSub(s)
	if j.refused != nil {
		h.refuse(c, id, j.refused)
		return true
	}
	if kind == kindSession {
		h.dropFilter(c, name, j.topics)
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: j.why, Reason: j.reason})
	return true
}
