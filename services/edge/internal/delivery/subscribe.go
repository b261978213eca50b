package delivery

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
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
	// joined is the serial of the window of ephemeral candidates that it joined last.
	joined uint64
}

var noSubMore = slab.None[subMore]()

// pending is what a subscription has until it is open.
type pending struct {
	start  *starts.Start // until it begins
	answer frames.Subscribed
}

// filter that the client named.
func (s *sub) filter() string {
	if s.wildcard {
		return s.wild.Name
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
		more := h.conns.more(c)
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
		more := h.conns.more(c)
		more.byID, more.byRef = nil, nil
		h.conns.less(c)
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
	if why := h.rules.Subscribe(c.asking(m.GetId()), m); why != nil {
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
	s.start = starts.Of(m)
	if w := m.GetReceiveWindow(); w > 0 && w < c.window {
		s.window = uint16(w) // below maxWindow
	}
	s.kind = kindOf(s.start)
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
		heads, limit = h.topics.policy(s.topic).Durable, 0
	}
	h.mesh.Join(h.handle(s.c), s.ref, filter, heads, limit)
}

// inUse reports whether an id stands for something that is not over.
func (c *conn) inUse(id uint32) bool {
	return c.subByID(id) != nil || c.memberByID(id) != nil || slices.Contains(c.pubs, id) || c.claims.Asks(id)
}

// asking is the connection as checks of its request with an id see it.
func (c *conn) asking(id uint32) request.Client {
	return request.Client{
		IDInUse: id != 0 && c.inUse(id), Backend: c.backend, Draining: c.draining, HasSession: c.sess != nil,
		Subscriptions: c.subs.Len() + len(c.groups), Publishes: len(c.pubs) + int(c.silent),
	}
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
		s.start.Heads = e.Heads
		h.fan.inbox.Push(inbound{start: &activation{hub: h, c: c, gen: c.gen, sub: s.handle()}})
	}
}

// refuseSub ends a subscription that was never open.
func (h *Hub) refuseSub(s *sub, err error) {
	if s.dead {
		return
	}
	s.dead, s.active = true, false
	h.jobs.Push(&ending{sub: s.handle(), at: s.c.tracks.Len(), refused: code.From(err)})
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

// endSub takes a subscription apart, some tracks at a time, and says so at the end.
func (h *Hub) endSub(s *sub, why wirev1.Code, reason string) {
	if s.dead {
		return
	}
	s.dead, s.active = true, false
	h.rooms.presence.Moved(h.handle(s.c), s.filter(), s.wildcard)
	h.jobs.Push(&ending{sub: s.handle(), at: s.c.tracks.Len(), why: why, reason: reason})
}

type ending struct {
	sub     subRef
	at      int
	why     wirev1.Code
	reason  string
	refused *code.Error // instead of why, where it was never open
	removal sessions.Removal
}

func (j *ending) step(h *Hub) bool {
	s := j.sub.get()
	if s == nil || s.c.state != stateOpen {
		return true // its connection is taken apart as a whole
	}
	if !j.dropTracks(h, s) {
		return false
	}
	c, id := s.c, s.id
	if j.refused != nil {
		h.forgetSub(s)
		h.refuse(c, id, j.refused)
		return true
	}
	if s.kind == kindSession && !j.dropFilter(h, s) {
		return false
	}
	if s.open {
		h.rooms.report.Unsubscribed(h.handle(c), s.filter(), "", j.why, j.reason)
	}
	h.forgetSub(s)
	h.control(c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: j.why, Reason: j.reason})
	return true
}

// dropTracks drops some of the tracks that the subscription has for itself, and reports whether
// these were the last.
func (j *ending) dropTracks(h *Hub, s *sub) bool {
	c := s.c
	at, n := c.tracks.At, c.tracks.Len()
	if !s.wildcard && j.at > 0 { // it has tracks at one topic alone
		all := slices.Clone(h.tracks.of(c, s.topic))
		at, n = func(i int) *track { return all[i] }, len(all)
	}
	j.at = min(j.at, n)
	var parted []*meshv1.SessionCursor
	for n := 0; j.at > 0 && n < teardownSlice; n += 1 + h.takeCost() {
		j.at--
		t := at(j.at)
		if !t.has(s) || h.tracks.unshare(t, s) {
			continue
		}
		if t.kind == kindSession && j.refused == nil {
			name := strings.Clone(t.topic.name)
			j.removal.Add(name)
			if t.cur != nil {
				cur := h.sessions.encodeCursor(t)
				c.sess.Put(name, cur)
				h.tracks.more(t).cur = nil
				if t.changed || t.unacked > 0 {
					parted = append(parted, cur)
				}
			}
		}
		h.tracks.drop(t)
	}
	if len(parted) > 0 {
		// the connection may end before the subscription has: no track says then what was ACKed
		w := c.sess.Write()
		w.Cursors = parted
		h.mesh.Save(h.handle(c), 0, w, false)
	}
	return j.at == 0
}

// dropFilter takes the filter out of the session, unless another subscription has the same, and
// some of the cursors that no other filter of it wants; it reports whether these were the last.
func (j *ending) dropFilter(h *Hub, s *sub) bool {
	c, sess := s.c, s.c.sess
	w := sess.Write()
	if !j.removal.Begun() {
		h.addCost(c.subs.Len())
		for _, o := range c.subs.All() {
			if o != s && o.kind == kindSession && o.filter() == s.filter() {
				return true
			}
		}
		j.removal.Begin(&sess.Session, s.filter(), w)
	}
	done := j.removal.Step(&sess.Session, w, teardownSlice)
	if len(w.RemoveFilters)+len(w.RemoveTopics)+len(w.Cursors) > 0 {
		h.mesh.Save(h.handle(c), 0, w, true)
	}
	return done
}
