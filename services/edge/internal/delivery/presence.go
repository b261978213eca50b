package delivery

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// watched is who is to be told of as members of filters. What comes and goes is noted, and looked
// at some at a time: what is told then is how it is then, so that the last word on a member is
// right whatever was noted before.
type watched struct {
	topics  map[string]*watchedFilter // without wildcards
	filters map[string]*watchedFilter // with
	wild    topic.Index[*watchedFilter]
	found   []*watchedFilter
	notes   fifo[note]
	missed  bool // there was no room for a note
	telling bool // in hub.jobs
}

type watchedFilter struct {
	name string
	wild bool
	walk uint64 // 0: not watched any more
}

// note is to look at a connection's place in a topic, or that it ended.
type note struct {
	f     *watchedFilter // nil: it ended
	c     *conn
	gen   uint32
	topic string // with wildcards
	id    uint64 // of the connection that ended
}

const (
	// mostNotes bounds what waits to be looked at.
	mostNotes = 1 << 16
	// notesSlice is how many are looked at in one go, walkSlice how many connections a walk looks
	// at.
	notesSlice = 64
	walkSlice  = 64
)

func (h *Hub) watchMembers(e exchange.WatchMembers) {
	w := h.watched
	if w == nil {
		if e.Walk == 0 {
			return
		}
		w = &watched{topics: map[string]*watchedFilter{}, filters: map[string]*watchedFilter{}}
		h.watched = w
	}
	by, wild := w.topics, topic.IsFilter(e.Filter)
	if wild {
		by = w.filters
	}
	f := by[e.Filter]
	switch {
	case e.Walk > 0 && f == nil:
		f = &watchedFilter{name: e.Filter, wild: wild}
		if by[e.Filter] = f; wild {
			w.wild.Add(f.name, f)
		}
	case e.Walk == 0 && f != nil:
		f.walk = 0
		if delete(by, f.name); wild {
			w.wild.Remove(f.name, f)
		}
		if len(w.topics)+len(w.filters) == 0 {
			h.watched = nil
		}
		return
	case f == nil:
		return
	}
	f.walk = e.Walk
	h.jobs.push(&memberWalk{f: f, walk: f.walk})
}

// moved notes that a subscription with this filter came or went.
func (w *watched) moved(h *Hub, c *conn, filter string, wildcard bool) {
	if wildcard {
		h.looked(len(w.topics))
		for name, f := range w.topics {
			if topic.Match(filter, name) {
				w.note(h, note{f: f, c: c, gen: c.gen})
			}
		}
		return
	}
	if f := w.topics[filter]; f != nil {
		w.note(h, note{f: f, c: c, gen: c.gen})
	}
	if w.found = w.wild.Match(w.found[:0], filter); len(w.found) == 0 {
		return
	}
	name := strings.Clone(filter)
	for _, f := range w.found {
		w.note(h, note{f: f, c: c, gen: c.gen, topic: name})
	}
	clear(w.found)
}

// ended notes that a connection is no member of anything any more.
func (w *watched) ended(h *Hub, c *conn) { w.note(h, note{c: c, id: h.connID(c)}) }

func (w *watched) note(h *Hub, n note) {
	if w.notes.len() >= mostNotes {
		w.missed = true
		return
	}
	w.notes.push(n)
	if !w.telling {
		w.telling = true
		h.jobs.push(telling{w})
	}
}

// telling tells of what was noted.
type telling struct{ w *watched }

func (j telling) step(h *Hub) bool {
	w := j.w
	if h.watched != w {
		return true
	}
	changes := make([]presence.Change, 0, min(w.notes.len(), notesSlice))
	for n := 0; n < notesSlice && w.notes.len() > 0; n += 1 + h.toll() {
		if next, _ := w.notes.pop(); next.f == nil {
			changes = append(changes, presence.Change{Kind: presence.Ended, Member: &presence.Member{ConnectionId: next.id}})
		} else if c, ok := h.look(next); ok {
			changes = append(changes, c)
		}
	}
	if w.telling = w.notes.len() > 0; !w.telling && w.missed {
		w.missed = false
		changes = append(changes, presence.Change{Kind: presence.Missed})
	}
	if len(changes) > 0 {
		h.mesh.TellMembers(h.cfg.Loop, changes)
	}
	return !w.telling
}

// look says how it is with a connection and a topic now.
func (h *Hub) look(n note) (presence.Change, bool) {
	if n.f.walk == 0 || n.c.gen != n.gen || n.c.state != stateOpen {
		return presence.Change{}, false // of a connection that ended that is told, too
	}
	c := presence.Change{Kind: presence.Left, Filter: n.f.name, Walk: n.f.walk}
	if since, is := h.isMember(n.c, n.f, n.topic); is {
		c.Kind, c.Member = presence.Joined, h.member(n.c, n.topic, since)
	} else {
		c.Member = &presence.Member{Topic: n.topic, ConnectionId: h.connID(n.c)}
	}
	return c, true
}

// isMember reports whether an open connection is in a topic of a watched filter, and since when.
func (h *Hub) isMember(c *conn, f *watchedFilter, name string) (since uint32, is bool) {
	if f.wild && !h.cfg.PolicyFor(name).Presence {
		return 0, false
	}
	h.looked(c.subs.Len() + len(c.groups))
	for _, s := range c.subs.All() {
		if s.counts() && f.covers(s.filter(), s.wildcard, name) && (!is || s.since < since) {
			since, is = s.since, true
		}
	}
	for _, g := range c.groups {
		if g.Counts() && f.covers(g.Filter, topic.IsFilter(g.Filter), name) && (!is || g.Since < since) {
			since, is = g.Since, true
		}
	}
	return since, is
}

// covers reports whether a subscription's filter makes a member of a topic.
func (f *watchedFilter) covers(filter string, wildcard bool, name string) bool {
	switch {
	case f.wild:
		return filter == name
	case wildcard:
		return topic.Match(filter, f.name)
	}
	return filter == f.name
}

// counts reports whether a subscription makes a member of its connection: it was answered, and is
// not over.
func (s *sub) counts() bool { return s.active && s.open && !s.dead }

// member tells of a connection.
func (h *Hub) member(c *conn, name string, since uint32) *presence.Member {
	m := &presence.Member{
		Topic: name, ConnectionId: h.connID(c), ClientId: strings.Clone(c.clientID), ConnectedAt: c.since, SubscribedAt: since,
	}
	if c.sess != nil {
		m.User, m.Session = c.sess.user, c.sess.name
	}
	return m
}
