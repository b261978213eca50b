package delivery

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// forgetPending gives back what was needed until the subscription was open.
func (b *starter) forgetPending(s *state.Subscription) {
	if s.Pending != nil {
		if s.Pending.Exact {
			if b.exact--; b.exact == 0 {
				b.firsts = nil
			}
		}
		if len(s.Pending.Heard) > 0 { // it was over before it began
			b.hub.jobs.Push(&forgetting{topics: b.takeHeard(s)})
		}
		b.pendings.Give(s.Pending)
		s.Pending = nil
	}
}

// forgetting lets go of topics that something was heard of, some at a time.
type forgetting struct{ topics []*state.Topic }

func (j *forgetting) step(h *Hub) bool {
	for n := 0; n < teardownSlice && len(j.topics) > 0; n++ {
		h.starter.forget(j.topics[len(j.topics)-1])
		j.topics = j.topics[:len(j.topics)-1]
	}
	return len(j.topics) == 0
}

func (h *Hub) subscribe(c *state.Conn, m *wirev1.Subscribe) {
	h.addCost(requestUnits * itemsPerUnit)
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.rules.Subscribe(h.asking(c, m.GetId()), m); why != nil {
		h.refuse(c, m.GetId(), why)
		return
	}
	if m.GetGroup() != "" {
		h.groups.join(c, m)
		return
	}
	bytes := starts.Kept(m)
	if bytes > 0 && !h.kept.Fits(c.Slot, bytes) {
		h.refuse(c, m.GetId(), request.NoMemory)
		return
	}
	c.NextRef++
	s := h.subs.Slab.Take()
	s.SubscriptionMore = state.NoSubscriptionMore
	s.Conn, s.ID, s.Ref, s.Overflow, s.ACK = c, m.GetId(), c.NextRef, uint8(m.GetOverflow()), m.GetAck()
	s.Since = uint32(h.wall / 1e6)
	s.Gen, s.Wildcard = h.tracks.NextGen(), topic.IsFilter(m.GetFilter())
	s.Pending = h.starter.pendings.Take()
	s.Start = starts.Of(m, h.rules.Namespaces)
	if w := m.GetReceiveWindow(); w > 0 && w < c.Window {
		s.Window = uint16(w) // below request.MaxWindow
	}
	s.Kind = state.KindOf(s.Start)
	h.subs.Add(c, s)
	h.rooms.permissions.Hold(h.handle(c), s.ID)
	h.stats.Subscriptions++
	if s.Wildcard {
		h.wildcards.subscribe(s, m.GetFilter())
		h.keepFor(s, bytes)
	} else {
		ts := h.topics.Get(m.GetFilter())
		ts.Exact++
		s.Topic = ts
	}
	if m.GetRankTopK() > 0 {
		h.ranked.subscribe(s, m.GetRankTopK())
	}
	if m.GetNoEcho() {
		h.subs.Picks(s).Origin = h.rooms.principals.Origin(c.Slot, c.ClientID)
	}
	if m.GetWhere() != "" {
		h.filter(s, m)
		return
	}
	h.join(s, m.GetFilter())
}

// join has the mesh want the subscription's topics.
func (h *Hub) join(s *state.Subscription, filter string) {
	heads, limit := true, h.lim.WildcardTopics
	if !s.Wildcard {
		heads, limit = h.topics.Policy(s.Topic).Durable, 0
		s.Exact, s.SeqBefore, s.EpochBefore = true, s.Topic.Last, s.Topic.Epoch
		h.starter.exact++
	}
	h.mesh.Join(h.handle(s.Conn), s.Ref, filter, heads, limit)
}

// joined goes on with a subscription: routers know of it, and these are its heads.
func (h *Hub) joined(c *state.Conn, e exchange.Joined) {
	s := c.SubByRef(e.Sub)
	if s == nil || s.Dead || s.Pending == nil || s.Start == nil {
		if h.stats.StaleEvents++; s == nil || s.Dead {
			h.tidy(c, s.Handle(), e.Heads)
		}
		return
	}
	bytes := len(e.Heads) * starts.HeadBytes
	again := 0 // bytes of the session's that are charged to the subscription from here on
	if s.Wildcard && s.Kind == state.KindSession {
		again = min(bytes, c.Session.Kept)
	}
	fits := bytes == again || !s.Wildcard || h.kept.Fits(c.Slot, bytes-again)
	switch {
	case (e.Err != nil || !fits) && s.Wildcard && !s.Bounded() && !s.Headless && !s.Start.NeedsHeads(s.Filter()):
		// Plain live subscriptions go on without heads: too many topics to name, no memory for
		// them, or no store to ask.
		h.mesh.Leave(h.cfg.Loop, s.Filter())
		s.Headless = true
		h.mesh.Join(h.handle(c), s.Ref, s.Filter(), false, 0)
	case e.Err != nil:
		h.refuseSub(s, e.Err)
	case !fits:
		h.refuseSub(s, request.NoMemory)
	default:
		if s.Wildcard {
			h.keepFor(s, bytes)
		}
		if again > 0 {
			c.Session.Kept -= again
			h.kept.Charge(c.Slot, -again)
		}
		s.Start.Heads = e.Heads
		h.starter.begin(s)
	}
}

// keepFor charges what is kept for a subscription with wildcards until it is gone: its positions,
// and the topics that it began with.
func (h *Hub) keepFor(s *state.Subscription, bytes int) {
	if bytes != 0 {
		s.SubscriptionMore.Kept = uint32(int(s.SubscriptionMore.Kept) + bytes)
		h.kept.Charge(s.Conn.Slot, bytes)
	}
}

// refuseSub ends a subscription that was never open.
func (h *Hub) refuseSub(s *state.Subscription, err error) {
	if s.Dead {
		return
	}
	s.Dead, s.Active = true, false
	h.jobs.Push(&ending{sub: s.Handle(), at: s.Conn.Tracks.Len(), refused: code.From(err), removal: sessions.Removal{Stored: true}})
}

// forgetSub takes a subscription without tracks out of every list.
func (h *Hub) forgetSub(s *state.Subscription) {
	name := strings.Clone(s.Filter())
	joined := !s.Unjoined
	if s.Filtered {
		h.mesh.Unfilter(h.handle(s.Conn), s.Ref)
	}
	h.starter.forgetPending(s)
	h.rooms.permissions.Over(s.Conn.Slot, s.ID)
	h.subs.Remove(s.Conn, s)
	if s.Wildcard {
		h.keepFor(s, -int(s.SubscriptionMore.Kept))
		h.wildcards.unsubscribe(s)
	} else {
		s.Topic.Exact--
		h.letGoTopic(s.Topic)
	}
	if s.SubscriptionMore != state.NoSubscriptionMore {
		h.subs.Mores.Free(s.SubscriptionMore)
	}
	h.stats.Subscriptions--
	*s = state.Subscription{}
	h.subs.Slab.Free(s)
	if joined {
		h.mesh.Leave(h.cfg.Loop, name)
	}
}

func (h *Hub) unsubscribe(c *state.Conn, m *wirev1.Unsubscribe) {
	h.addCost(requestUnits * itemsPerUnit)
	s, g := c.SubByID(m.GetId()), c.MemberByID(m.GetId())
	switch {
	case m.GetId() == 0:
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
	case g != nil:
		h.groups.end(g, wirev1.Code_CODE_OK, "")
	case h.rooms.members.Unwatch(c.Slot, m.GetId(), wirev1.Code_CODE_OK, ""):
	case s == nil || s.Dead:
		h.refuse(c, m.GetId(), code.New(wirev1.Code_CODE_NOT_FOUND, "there is no such subscription"))
	default:
		h.endSub(s, wirev1.Code_CODE_OK, "")
	}
}

// endSub takes a subscription apart, some tracks at a time, and says so at the end.
func (h *Hub) endSub(s *state.Subscription, why wirev1.Code, reason string) {
	if s.Dead {
		return
	}
	s.Dead, s.Active = true, false
	h.rooms.presence.Moved(h.handle(s.Conn), s.Filter(), s.Wildcard)
	h.jobs.Push(&ending{sub: s.Handle(), at: s.Conn.Tracks.Len(), why: why, reason: reason})
}

type ending struct {
	sub     state.SubscriptionRef
	at      int
	why     wirev1.Code
	reason  string
	refused *code.Error // instead of why, where it was never open
	removal sessions.Removal
}

func (j *ending) step(h *Hub) bool {
	s := j.sub.Get()
	if s == nil || s.Conn.Phase != state.Open {
		return true // its connection is taken apart as a whole
	}
	if !j.dropTracks(h, s) {
		return false
	}
	c, id := s.Conn, s.ID
	if j.refused != nil {
		// the session goes on as it was; of what it had no filter for nothing stays
		if s.Kind == state.KindSession && !h.takeOut(c, &j.removal, c.Session.Write()) {
			return false
		}
		h.forgetSub(s)
		h.refuse(c, id, j.refused)
		return true
	}
	// it may have the rest back once somebody answers: its session keeps what it has
	if s.Kind == state.KindSession && j.why != wirev1.Code_CODE_UNAVAILABLE && !j.dropFilter(h, s) {
		return false
	}
	if s.Open {
		h.rooms.report.Unsubscribed(h.handle(c), s.Filter(), "", j.why, j.reason)
	}
	h.forgetSub(s)
	h.control(c, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: id, Code: j.why, Reason: j.reason})
	return true
}

// dropTracks drops some of the tracks that the subscription has for itself, and reports whether
// these were the last.
func (j *ending) dropTracks(h *Hub, s *state.Subscription) bool {
	c := s.Conn
	at, n := c.Tracks.At, c.Tracks.Len()
	if !s.Wildcard && j.at > 0 { // it has tracks at one topic alone
		all := slices.Clone(h.tracks.Of(c, s.Topic))
		at, n = func(i int) *state.Track { return all[i] }, len(all)
	}
	j.at = min(j.at, n)
	var parted []*meshv1.SessionCursor
	for n := 0; j.at > 0 && n < teardownSlice; n += 1 + h.takeCost() {
		j.at--
		t := at(j.at)
		if !t.Has(s) {
			continue
		}
		if h.tracks.Unshare(t, s) {
			if !t.ACK && t.Win != nil {
				h.windows.drop(t)
			}
			continue
		}
		if t.Kind == state.KindSession {
			name := strings.Clone(t.Topic.Name())
			j.removal.Add(name)
			if t.Cursor != nil {
				cur := h.sessions.encodeCursor(t)
				c.Session.Put(name, cur)
				h.tracks.More(t).Cursor = nil
				if t.Changed || t.Unacked > 0 {
					parted = append(parted, cur)
				}
			}
		}
		h.dropTrack(t)
	}
	if len(parted) > 0 {
		// the connection may end before the subscription has: no track says then what was ACKed
		w := c.Session.Write()
		w.Cursors = parted
		h.mesh.Save(h.handle(c), 0, w, false)
	}
	return j.at == 0
}

// dropFilter takes the filter out of the session, unless another subscription has the same, and
// some of the cursors that no other filter of it wants; it reports whether these were the last.
func (j *ending) dropFilter(h *Hub, s *state.Subscription) bool {
	c, sess := s.Conn, s.Conn.Session
	w := sess.Write()
	if !j.removal.Begun() {
		h.addCost(c.Subs.Len())
		for _, o := range c.Subs.All() {
			if o != s && o.Kind == state.KindSession && o.Filter() == s.Filter() {
				return true
			}
		}
		j.removal.Begin(&sess.Session, s.Filter(), w)
	}
	return h.takeOut(c, &j.removal, w)
}

// takeOut takes some positions out of the session that no filter of it wants, and reports whether
// these were the last.
func (h *Hub) takeOut(c *state.Conn, r *sessions.Removal, w *meshv1.SessionWrite) (done bool) {
	var coming []string
	h.addCost(c.Subs.Len())
	for _, o := range c.Subs.All() {
		if o.Kind == state.KindSession && !o.Open && !o.Dead {
			coming = append(coming, o.Filter())
		}
	}
	done = r.Step(&c.Session.Session, w, coming, teardownSlice)
	if len(w.RemoveFilters)+len(w.RemoveTopics)+len(w.Cursors) > 0 {
		h.mesh.Save(h.handle(c), 0, w, true)
	}
	return done
}

// tidy is takeOut of topics with which a subscription was to begin that is over, once its filter
// has gone: what it had no position at yet, the session has still. Positions in topics of fresh
// were not stored yet.
func (h *Hub) tidy(c *state.Conn, over state.SubscriptionRef, heads []exchange.Head, fresh ...string) {
	if c.Session == nil || len(heads) == 0 {
		return
	}
	gen, r := c.Gen, sessions.RemovalOf(heads)
	r.Add(fresh...)
	h.rooms.jobs.Push(walk.Func(func() bool {
		return c.Gen != gen || c.Phase != state.Open || over.Get() == nil && h.takeOut(c, &r, c.Session.Write())
	}))
}

// dropTrack ends a track: nothing of it is sent any more.
func (h *Hub) dropTrack(t *state.Track) {
	ts := t.Topic
	h.purge(t, true)
	h.replay.releaseRange(t)
	h.windows.drop(t)
	h.replay.notWaiting(t)
	h.tracks.Unlink(t)
	h.tracks.LeaveTopic(ts, h.fan.stepBack(ts, int(t.AtTopic)))
	h.letGoTopic(ts)
	h.tracks.Free(t)
}
