package delivery

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// sub is one subscription of one connection. It lies in the hub's slab: lists that may outlive it
// hold a subRef.
type sub struct {
	c        *conn
	topic    *topicState // without wildcards
	*subMore             // noSubMore without wildcards, content filter and ranking
	*pending             // nil once it is open
	gen      uint32
	id       uint32 // the client's
	ref      uint32 // names it to the mesh; never used twice on a connection
	atConn   uint32 // in c.subs
	since    uint32 // when it was made, Unix time in seconds
	window   uint16 // 0: only the connection's, which is greater
	kind     trackKind
	ack      bool
	wildcard bool
	active   bool  // it has its tracks
	open     bool  // Subscribed was sent
	overflow uint8 // wirev1.Overflow
	headless bool  // it does not know the heads of its topics, and begins with what comes first
	dead     bool
	filtered bool // it has a content filter
	unjoined bool // it waits for the number of that, and the mesh has no Join of it
}

// subMore is what one with wildcards or a content filter, or that is ranked, has beside.
type subMore struct {
	wild   *filter
	at     uint32 // in filter.subs
	topics uint32 // tracks at topics that it did not name
	where  uint32 // number of its content filter; 0: not known yet
	topK   uint32 // of the best; 0: it is not ranked
	// gathered is the serial of the ephemeral candidates that it is a member of.
	gathered uint64
}

var noSubMore = slab.None[subMore]()

// pending is what a subscription has until it is open.
type pending struct {
	start  *start // until it begins
	answer answer
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

// forgetPending gives back what was needed until the subscription was open.
func (b *starter) forgetPending(s *sub) {
	if s.pending != nil {
		b.pendings.Give(s.pending)
		s.pending = nil
	}
}

func (h *Hub) addSub(c *conn, s *sub) {
	s.atConn = uint32(c.subs.Len())
	c.subs.Append(&h.arrays, s)
	if c.byID == nil && c.subs.Len() > manyOf {
		more := h.more(c)
		more.byID, more.byRef = map[uint32]*sub{}, map[uint32]*sub{}
		for _, s := range c.subs.All() {
			more.byID[s.id], more.byRef[s.ref] = s, s
		}
	} else if c.byID != nil {
		c.byID[s.id], c.byRef[s.ref] = s, s
	}
}

func (h *Hub) removeSub(c *conn, s *sub) {
	if moved := c.subs.Take(&h.arrays, int(s.atConn)); moved != nil {
		moved.atConn = s.atConn
	}
	if c.byID == nil {
		return
	}
	delete(c.byID, s.id)
	delete(c.byRef, s.ref)
	if c.subs.Len() == 0 {
		more := h.more(c)
		more.byID, more.byRef = nil, nil
		h.less(c)
	}
}

// subByRef finds what the mesh means.
func (c *conn) subByRef(ref uint32) *sub {
	if c.byRef != nil {
		return c.byRef[ref]
	}
	for _, s := range c.subs.All() {
		if s.ref == ref {
			return s
		}
	}
	return nil
}

// bounded reports whether it may match a limited number of topics.
func (s *sub) bounded() bool { return s.wildcard && (s.ack || s.kind != kindPlain) }

func (c *conn) subByID(id uint32) *sub {
	if c.byID != nil {
		return c.byID[id]
	}
	for _, s := range c.subs.All() {
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
	why := h.checkSubscribe(c, m)
	if why == nil {
		why = h.tooLate()
	}
	if why == nil {
		why = h.tooTangled(m)
	}
	if why != nil {
		h.refuse(c, m.GetId(), why)
		return
	}
	if m.GetGroup() != "" {
		h.groups.join(c, m)
		return
	}
	c.nextRef++
	s := h.subSlab.Take()
	s.subMore = noSubMore
	s.c, s.id, s.ref, s.overflow, s.ack = c, m.GetId(), c.nextRef, uint8(m.GetOverflow()), m.GetAck()
	s.since = uint32(h.wall / 1e6)
	s.gen, s.wildcard = h.tracks.nextGen(), topic.IsFilter(m.GetFilter())
	s.pending = h.starter.pendings.Take()
	s.start = startOf(m)
	if w := m.GetReceiveWindow(); w > 0 && w < c.window {
		s.window = uint16(w) // below maxWindow
	}
	s.kind = s.start.kind()
	h.addSub(c, s)
	h.stats.Subscriptions++
	if s.wildcard {
		h.wildcards.subscribe(s, m.GetFilter())
	} else {
		ts := h.topic(m.GetFilter())
		ts.exact++
		s.topic = ts
	}
	if m.GetRankTopK() > 0 {
		h.ranked.subscribe(s, m.GetRankTopK())
	}
	if m.GetWhere() != "" {
		h.filter(s, m)
		return
	}
	h.join(s, m.GetFilter())
}

// join has the mesh want the subscription's topics.
func (h *Hub) join(s *sub, filter string) {
	heads, limit := true, h.lim.WildcardTopics
	if !s.wildcard {
		heads, limit = h.policy(s.topic).Durable, 0
	}
	h.mesh.Join(h.handle(s.c), s.ref, filter, heads, limit)
}

func (h *Hub) checkSubscribe(c *conn, m *wirev1.Subscribe) *code.Error {
	invalid := func(text string) *code.Error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, text) }
	unsupported := func(text string) *code.Error { return code.New(wirev1.Code_CODE_UNSUPPORTED, text) }
	switch {
	case c.inUse(m.GetId()):
		return invalid("the id is in use")
	case m.GetWhere() != "" && m.GetGroup() != "":
		return unsupported("a group has no content filter: what a member does not want goes to nobody else")
	case len(m.GetWhere()) > maxWhere:
		return invalid("where has 4,096 bytes at most")
	case m.GetNoEcho():
		return unsupported("no_echo is not supported")
	case c.subs.Len()+len(c.groups) >= h.lim.Subscriptions:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "the connection has as many subscriptions as it may")
	case c.draining:
		return code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")
	}
	if err := topic.CheckFilter(m.GetFilter()); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	if why := h.cfg.Refuses(m.GetFilter()); why != nil {
		return why
	}
	wildcard := topic.IsFilter(m.GetFilter())
	switch {
	case !c.backend && backendsOnly(m.GetFilter()):
		return code.New(wirev1.Code_CODE_FORBIDDEN, "the mesh's own topics are for backends, which subscribe through a router")
	case m.GetStart() < 0 || m.GetStart() > wirev1.Start_START_SESSION:
		return invalid("there is no such start")
	case m.GetOverflow() < 0 || m.GetOverflow() > wirev1.Overflow_OVERFLOW_DISCONNECT:
		return invalid("there is no such overflow")
	case m.GetStart() == wirev1.Start_START_SESSION && c.sess == nil && m.GetGroup() == "":
		return invalid("Hello named no session")
	case len(m.GetPositions()) > h.lim.WildcardTopics:
		return code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "more positions than topics that a filter may match")
	case m.GetOverflow() == wirev1.Overflow_OVERFLOW_DROP_OLDEST && (m.GetAck() || m.GetStart() == wirev1.Start_START_SESSION) &&
		(wildcard || h.cfg.PolicyFor(m.GetFilter()).Durable):
		return unsupported("nothing is dropped on a durable topic with ack or a session")
	case m.GetRankTopK() > 0:
		if err := ranked.Check(m, h.cfg.PolicyFor(m.GetFilter())); err != nil {
			return err
		}
	}
	if err := checkStart(m, wildcard); err != nil {
		return err
	}
	return membership.Check(m)
}

// checkStart refuses what a start has no use for: the client meant something by it.
func checkStart(m *wirev1.Subscribe, wildcard bool) *code.Error {
	invalid := func(text string) *code.Error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, text) }
	after := m.GetStart() == wirev1.Start_START_AFTER_SEQ
	switch {
	case m.GetStart() == wirev1.Start_START_SESSION && len(m.GetPositions()) > 0:
		return invalid("start SESSION begins at the session's own positions: leave positions out")
	case m.GetSeq() > 0 && !after && m.GetStart() != wirev1.Start_START_LAST_N:
		return invalid("seq goes with start AFTER_SEQ or LAST_N: leave it out, or name the start")
	case m.GetEpoch() > 0 && !after:
		return invalid("epoch goes with start AFTER_SEQ: leave it out, or name the start")
	case after && len(m.GetPositions()) > 0 && (m.GetSeq() > 0 || m.GetEpoch() > 0):
		return invalid("with positions, seq and epoch are those of the positions: leave the subscription's own out")
	case after && wildcard && (m.GetSeq() > 0 || m.GetEpoch() > 0):
		return invalid("a filter with wildcards is resumed by positions")
	}
	return nil
}

// dead is the first level of dead-letter topics, the only ones of the mesh's own that clients may
// subscribe to.
const dead = "$dead"

// backendsOnly reports whether a valid filter is for topics of the mesh's own that clients may not
// subscribe to. No wildcard matches their first level.
func backendsOnly(filter string) bool {
	if filter[0] != '$' {
		return false
	}
	n := len(dead)
	return len(filter) < n || filter[:n] != dead || len(filter) > n && filter[n] != '/'
}

// inUse reports whether an id stands for something that is not over.
func (c *conn) inUse(id uint32) bool {
	return c.subByID(id) != nil || c.memberByID(id) != nil || slices.Contains(c.pubs, id) || c.claims.Asks(id)
}

// joined goes on with a subscription: routers know of it, and these are its heads.
func (h *Hub) joined(c *conn, e exchange.Joined) {
	s := c.subByRef(e.Sub)
	if s == nil || s.dead || s.pending == nil || s.start == nil {
		h.stats.StaleEvents++
		return
	}
	switch {
	case e.Err != nil && s.wildcard && !s.bounded() && !s.headless:
		// Plain live subscriptions go on without heads: too many topics to name, or no store to
		// ask.
		h.mesh.Leave(h.cfg.Loop, s.filter())
		s.headless = true
		h.mesh.Join(h.handle(c), s.ref, s.filter(), false, 0)
	case e.Err != nil:
		h.refuseSub(s, e.Err)
	default:
		s.start.heads = e.Heads
		h.fan.inbox.push(inbound{start: &activation{c: c, gen: c.gen, sub: s.handle()}})
	}
}

// refuseSub ends a subscription that was never open.
func (h *Hub) refuseSub(s *sub, err error) {
	if s.dead {
		return
	}
	s.dead, s.active = true, false
	h.jobs.push(&ending{sub: s.handle(), at: s.c.tracks.Len(), refused: code.From(err)})
}

// forgetSub takes a subscription without tracks out of every list.
func (h *Hub) forgetSub(s *sub) {
	name := strings.Clone(s.filter())
	joined := !s.unjoined
	if s.filtered {
		h.unfilter(s)
	}
	h.starter.forgetPending(s)
	h.removeSub(s.c, s)
	if s.wildcard {
		h.wildcards.unsubscribe(s)
	} else {
		s.topic.exact--
		h.letGoTopic(s.topic)
	}
	if s.subMore != noSubMore {
		h.subMores.Free(s.subMore)
	}
	h.stats.Subscriptions--
	*s = sub{}
	h.subSlab.Free(s)
	if joined {
		h.mesh.Leave(h.cfg.Loop, name)
	}
}

func (h *Hub) unsubscribe(c *conn, m *wirev1.Unsubscribe) {
	s, g := c.subByID(m.GetId()), c.memberByID(m.GetId())
	switch {
	case m.GetId() == 0:
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
	case g != nil:
		h.groups.end(g, wirev1.Code_CODE_OK, "")
	case s == nil || s.dead:
		h.refuse(c, m.GetId(), code.New(wirev1.Code_CODE_NOT_FOUND, "there is no such subscription"))
	default:
		h.endSub(s, wirev1.Code_CODE_OK, "")
	}
}
