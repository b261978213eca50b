// Package presence is what an event loop tells of the members of filters that somebody watches.
// What comes and goes is noted, and looked at some at a time: what is told then is how it is then,
// so that the last word on a member is right whatever was noted before.
package presence

import (
	"strings"

	members "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Subscription is one that a connection has, alone or as a member of a group. Filter is good until
// the next change of any subscription.
type Subscription struct {
	Filter   string
	Wildcard bool
	Since    uint32 // Unix time in seconds
	// Counts: it was answered and is not ending, so that it makes a member of its connection.
	Counts bool
}

// Delivery is what presence needs of the loop's connections.
type Delivery interface {
	// Slots is how many slots there are. OpenConn is the open connection in one.
	Slots() uint32
	OpenConn(slot uint32) (c exchange.Conn, open bool)
	// Subscriptions are how many an open connection has alone, and in groups. Subscription is one.
	Subscriptions(c exchange.Conn) (alone, shared int)
	Subscription(c exchange.Conn, shared bool, i int) Subscription
	// ConnectionID names an open connection to everybody, and Member fills in who it is.
	ConnectionID(c exchange.Conn) uint64
	Member(c exchange.Conn, m *members.Member)
	// Client is whether a connection is a backend's; the rest is not looked at.
	Client(slot uint32) (clientID, user string, backend, is bool)
	// Tracks are how many places a topic has, of connections with a subscription that matches it;
	// what takes the place of one that goes was behind it. TrackAt is the connection in one, and
	// InGroups appends those with a group's subscription that names it.
	Tracks(topic string) int
	TrackAt(topic string, i int) exchange.Conn
	InGroups(dst []exchange.Conn, topic string) []exchange.Conn
	// Saying is what a connection says of itself in a topic, since when, in microseconds; 0: it has
	// never said anything.
	Saying(c exchange.Conn, topic string) (state []byte, since uint64)
	// Subscribers visits each connection with a subscription that matches a topic once, a slice at
	// a time, then calls done.
	Subscribers(topic string, visit func(exchange.Conn), done func())
}

// Mesh takes what is told.
type Mesh interface {
	TellMembers(loop uint16, changes []members.Change)
}

// Config of a Watch.
type Config struct {
	Loop     uint16
	Delivery Delivery
	Mesh     Mesh
	// Watched reports whether a topic's namespace has presence.
	Watched func(topic string) bool
	Jobs    *walk.Jobs
	Cost    *walk.Cost
}

// Watch is who is to be told of. It is used by one loop alone.
type Watch struct {
	cfg     Config
	topics  map[string]*filter // without wildcards
	filters map[string]*filter // with
	named   map[string]*filter // topics, whose members name them
	wild    topic.Index[*filter]
	found   []*filter
	notes   walk.FIFO[note]
	missed  bool // there was no room for a note
	telling bool // among the jobs
}

// filter that is watched.
type filter struct {
	name  string
	wild  bool
	named bool
	walk  uint64 // 0: not watched any more
}

// note is to look at a connection's place in a topic, or that it ended.
type note struct {
	f     *filter // nil: it ended
	c     exchange.Conn
	topic string // with wildcards
	id    uint64 // of the connection that ended
}

const (
	// MaxNotes bounds what waits to be looked at.
	MaxNotes = 1 << 16
	// notesSlice is how many notes are looked at in one go.
	notesSlice = 64
)

// New makes a watch of nothing.
func New(cfg Config) *Watch {
	return &Watch{cfg: cfg, topics: map[string]*filter{}, filters: map[string]*filter{}, named: map[string]*filter{}}
}

// Watching is how many filters are watched.
func (w *Watch) Watching() int { return len(w.topics) + len(w.filters) + len(w.named) }

// WatchMembers begins to watch a filter, begins anew, or ends that.
func (w *Watch) WatchMembers(e exchange.WatchMembers) {
	by, wild := w.topics, topic.IsFilter(e.Filter)
	if wild {
		by = w.filters
	} else if e.Named {
		by = w.named
	}
	f := by[e.Filter]
	switch {
	case e.Walk > 0 && f == nil:
		f = &filter{name: e.Filter, wild: wild, named: e.Named}
		if by[e.Filter] = f; wild {
			w.wild.Add(f.name, f)
		}
	case e.Walk == 0 && f != nil:
		f.walk = 0
		if delete(by, f.name); wild {
			w.wild.Remove(f.name, f)
		}
		if w.Watching() == 0 {
			w.notes, w.missed, w.found = walk.FIFO[note]{}, false, nil
		}
		return
	case f == nil:
		return
	}
	f.walk = e.Walk
	if f.named {
		w.cfg.Jobs.Push(&namedWalk{w: w, f: f, walk: f.walk})
		return
	}
	w.cfg.Jobs.Push(&memberWalk{w: w, f: f, walk: f.walk})
}

// Moved notes that a subscription of an open connection with this filter came or went.
func (w *Watch) Moved(c exchange.Conn, name string, wildcard bool) {
	if w.Watching() > 0 {
		w.moved(c, name, wildcard)
	}
}

func (w *Watch) moved(c exchange.Conn, name string, wildcard bool) {
	if wildcard {
		w.cfg.Cost.Add(len(w.topics))
		for watched, f := range w.topics {
			if topic.Match(name, watched) {
				w.note(note{f: f, c: c})
			}
		}
		return
	}
	if f := w.topics[name]; f != nil {
		w.note(note{f: f, c: c})
	}
	if f := w.named[name]; f != nil {
		w.note(note{f: f, c: c})
	}
	if w.found = w.wild.Match(w.found[:0], name); len(w.found) == 0 {
		return
	}
	name = strings.Clone(name)
	for _, f := range w.found {
		w.note(note{f: f, c: c, topic: name})
	}
	clear(w.found)
}

// Ended notes that an open connection is no member of anything any more.
func (w *Watch) Ended(c exchange.Conn) {
	if w.Watching() > 0 {
		w.note(note{c: c, id: w.cfg.Delivery.ConnectionID(c)})
	}
}

func (w *Watch) note(n note) {
	if w.notes.Len() == MaxNotes {
		w.missed = true
		return
	}
	w.notes.Push(n)
	if !w.telling {
		w.telling = true
		w.cfg.Jobs.Push(telling{w})
	}
}

// telling tells of what was noted.
type telling struct{ w *Watch }

// Step implements walk.Job.
func (j telling) Step() bool {
	w := j.w
	changes := make([]members.Change, 0, min(w.notes.Len(), notesSlice))
	for range w.cfg.Cost.Slice(notesSlice) {
		n, ok := w.notes.Pop()
		if !ok {
			break
		}
		if n.f == nil {
			changes = append(changes, members.Change{Kind: members.Ended, Member: &members.Member{ConnectionId: n.id}})
		} else if c, ok := w.look(n); ok {
			changes = append(changes, c)
		}
	}
	if w.telling = w.notes.Len() > 0; !w.telling && w.missed {
		w.missed = false
		changes = append(changes, members.Change{Kind: members.Missed})
	}
	if len(changes) > 0 {
		w.cfg.Mesh.TellMembers(w.cfg.Loop, changes)
	}
	return !w.telling
}

// look says how it is with a connection and a topic now.
func (w *Watch) look(n note) (members.Change, bool) {
	if now, open := w.cfg.Delivery.OpenConn(n.c.Slot); n.f.walk == 0 || !open || now != n.c {
		return members.Change{}, false // of a connection that ended that is told, too
	}
	c := members.Change{Kind: members.Left, Filter: n.f.name, Named: n.f.named, Walk: n.f.walk}
	if since, is := w.isMember(n.c, n.f, n.topic); is {
		c.Kind, c.Member = members.Joined, w.memberOf(n.f, n.c, n.topic, since)
	} else {
		c.Member = &members.Member{Topic: n.topic, ConnectionId: w.cfg.Delivery.ConnectionID(n.c)}
	}
	return c, true
}

// Since is when the oldest of an open connection's subscriptions that match a topic was made.
func (w *Watch) Since(c exchange.Conn, name string) (since uint32, is bool) {
	return w.isMember(c, &filter{name: name}, "")
}

// Names reports whether an open connection has a subscription that names a topic.
func (w *Watch) Names(c exchange.Conn, name string) bool {
	_, is := w.isMember(c, &filter{name: name, named: true}, "")
	return is
}

// isMember reports whether an open connection is in a topic of a watched filter, and since when.
func (w *Watch) isMember(c exchange.Conn, f *filter, name string) (since uint32, is bool) {
	if f.wild && !w.cfg.Watched(name) {
		return 0, false
	}
	if f.named {
		if _, _, backend, _ := w.cfg.Delivery.Client(c.Slot); backend {
			return 0, false
		}
	}
	alone, shared := w.cfg.Delivery.Subscriptions(c)
	w.cfg.Cost.Add(alone + shared)
	for i := range alone + shared {
		in, at := i >= alone, i
		if in {
			at -= alone
		}
		s := w.cfg.Delivery.Subscription(c, in, at)
		if s.Counts && f.covers(&s, name) && (!is || s.Since < since) {
			since, is = s.Since, true
		}
	}
	return since, is
}

// covers reports whether a subscription makes a member of a topic.
func (f *filter) covers(s *Subscription, name string) bool {
	switch {
	case f.wild:
		return s.Filter == name
	case f.named:
		return !s.Wildcard && s.Filter == f.name
	case s.Wildcard:
		return topic.Match(s.Filter, f.name)
	}
	return s.Filter == f.name
}

// memberOf tells of a connection that is a member of a filter.
func (w *Watch) memberOf(f *filter, c exchange.Conn, name string, since uint32) *members.Member {
	m := w.member(c, name, since)
	if f.named {
		m.State, m.StateAt = w.cfg.Delivery.Saying(c, f.name)
	}
	return m
}

// member tells of a connection.
func (w *Watch) member(c exchange.Conn, name string, since uint32) *members.Member {
	m := &members.Member{Topic: name, ConnectionId: w.cfg.Delivery.ConnectionID(c), SubscribedAt: since}
	w.cfg.Delivery.Member(c, m)
	return m
}
