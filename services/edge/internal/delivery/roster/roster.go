// Package roster is who the connections of a loop are, and what they subscribe to, as the rooms
// beside delivery ask: presence, audit, the departure of clients, and others.
package roster

import (
	"strings"

	reports "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/report"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/count"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/departure"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/presence"
)

// Names of users: principals.Table.
type Names interface {
	Name(slot uint32) string
	User(slot uint32) string
}

// States are what connections say of themselves in topics: members.Desk.
type States interface {
	State(slot uint32, topic string) (value []byte, since uint64)
}

// Roster is used by one loop alone. Handles are of connections that have not ended.
type Roster struct {
	Loop   uint16
	Seed   uint64 // of ConnID
	Conns  *state.Conns
	Topics *state.Topics
	Counts *count.Desk
	Groups *membership.Groups
	Names  Names
	States States
	// Wall is Unix time in microseconds.
	Wall func() uint64
}

func (r *Roster) conn(at exchange.Conn) *state.Conn { return r.Conns.Get(at.Slot) }

func (r *Roster) handle(c *state.Conn) exchange.Conn {
	return exchange.Conn{Loop: r.Loop, Slot: c.Slot, Gen: c.Gen}
}

// Slots is how many slots there are; some are empty.
func (r *Roster) Slots() uint32 { return r.Conns.Len() }

// OpenConn is the connection in a slot, and whether it is open.
func (r *Roster) OpenConn(slot uint32) (at exchange.Conn, open bool) {
	c := r.Conns.Get(slot)
	return r.handle(c), c.Phase == state.Open
}

// Subscriptions are how many a connection has alone, and in groups.
func (r *Roster) Subscriptions(at exchange.Conn) (alone, shared int) {
	c := r.conn(at)
	return c.Subs.Len(), len(c.Groups)
}

// Subscription is one of them.
func (r *Roster) Subscription(at exchange.Conn, shared bool, i int) presence.Subscription {
	c := r.conn(at)
	if shared {
		g := c.Groups[i]
		return presence.Subscription{Filter: g.Filter, Wildcard: topic.IsFilter(g.Filter), Since: g.Since, Counts: g.Counts()}
	}
	s := c.Subs.At(i)
	return presence.Subscription{Filter: s.Filter(), Wildcard: s.Wildcard, Since: s.Since, Counts: s.Active && s.Open && !s.Dead}
}

// ConnectionID names a connection to everybody.
func (r *Roster) ConnectionID(at exchange.Conn) uint64 {
	c := r.conn(at)
	return state.ConnID(r.Seed, c.Slot, c.Gen)
}

// Member fills in who a connection is.
func (r *Roster) Member(at exchange.Conn, m *reports.Member) {
	c := r.conn(at)
	m.ClientId, m.ConnectedAt, m.User = strings.Clone(c.ClientID), c.Since, r.Names.Name(at.Slot)
	if c.Session != nil {
		m.User, m.Session = c.Session.User, c.Session.Name
	}
}

// Saying is what a connection says of itself in a topic, and since when, in microseconds; 0: it has
// never said anything.
func (r *Roster) Saying(at exchange.Conn, topic string) (value []byte, since uint64) {
	return r.States.State(at.Slot, topic)
}

// Subscribers visits each connection with a subscription that matches a topic once, a slice at a
// time, then calls done.
func (r *Roster) Subscribers(topic string, visit func(exchange.Conn), done func()) {
	r.Counts.Begin([]string{topic}, func(c *state.Conn) { visit(r.handle(c)) }, func([]uint64) { done() })
}

// Tracks are how many places a topic has, of connections with a subscription that matches it: what
// takes the place of one that goes was behind it.
func (r *Roster) Tracks(topic string) int {
	if ts := r.Topics.ByName.Get(topic); ts != nil {
		return ts.Tracks.Len()
	}
	return 0
}

// TrackAt is the connection in one of them.
func (r *Roster) TrackAt(topic string, i int) exchange.Conn {
	return r.handle(r.Topics.ByName.Get(topic).Tracks.At(i).Conn)
}

// InGroups appends the connections with a group's subscription that names a topic.
func (r *Roster) InGroups(dst []exchange.Conn, topic string) []exchange.Conn {
	return r.Groups.NamedBy(dst, topic)
}

// Client is who a connection says it is, its user, and whether it is a backend's; is: it has said
// Hello, and has not ended.
func (r *Roster) Client(slot uint32) (clientID, user string, backend, is bool) {
	c := r.Conns.Get(slot)
	return c.ClientID, r.Names.User(slot), c.Backend, c.Phase == state.Open || c.Phase == state.Waiting
}

// State of a connection whose loop is to be left.
func (r *Roster) State(slot uint32) departure.State {
	switch c := r.Conns.Get(slot); {
	case c.Phase == state.Free || c.Phase == state.Closing:
		return departure.Gone
	case c.Phase == state.Waiting:
		return departure.Waiting
	case c.Phase != state.Open:
		return departure.Early
	case c.Draining:
		return departure.Going
	}
	return departure.Staying
}

// Who a connection is, for records of what it does.
func (r *Roster) Who(at exchange.Conn) report.Who {
	c := r.conn(at)
	w := report.Who{At: r.Wall(), Conn: r.ConnectionID(at), ClientID: c.ClientID, User: r.Names.User(at.Slot), Backend: c.Backend}
	if c.Session != nil {
		w.User, w.Session = c.Session.User, c.Session.Name
	}
	return w
}
