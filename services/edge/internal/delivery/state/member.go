package state

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
)

// Member is a subscription that shares its messages with others (package membership), and what of
// it its connection counts. It has no tracks.
type Member struct {
	*membership.Member
	Owner *Conn
	at    int  // in Owner.Groups
	Waits bool // has messages that wait for a window or the queue
	Runs  bool // in line to go on
	// Of its messages, how many Unacked and TimedOut of the connection have in them, and the bytes
	// that the connection is charged.
	CountedUnacked, CountedLate uint32
	CountedBytes                int
}

// AddMember notes a membership of the connection. Many are indexed.
func (m *ConnMore) AddMember(n *Member) {
	n.at = len(m.Groups)
	if m.Groups = append(m.Groups, n); m.GroupByID == nil && len(m.Groups) <= ManyOf {
		return
	}
	added := m.Groups[n.at:]
	if m.GroupByID == nil {
		m.GroupByID, m.GroupByRef, added = map[uint32]*Member{}, map[uint32]*Member{}, m.Groups
	}
	for _, n := range added {
		m.GroupByID[n.ID], m.GroupByRef[n.Ref] = n, n
	}
}

// RemoveMember forgets it: the last one has its place.
func (m *ConnMore) RemoveMember(n *Member) {
	last := len(m.Groups) - 1
	m.Groups[n.at] = m.Groups[last]
	m.Groups[n.at].at = n.at
	m.Groups[last] = nil
	m.Groups = m.Groups[:last]
	delete(m.GroupByID, n.ID)
	delete(m.GroupByRef, n.Ref)
	if last == 0 {
		m.Groups, m.GroupByID, m.GroupByRef = nil, nil, nil
	}
}

// MemberByRef finds the connection's membership with the ref.
func (c *Conn) MemberByRef(ref uint32) *Member {
	if c.GroupByRef != nil {
		return c.GroupByRef[ref]
	}
	for _, n := range c.Groups {
		if n.Ref == ref {
			return n
		}
	}
	return nil
}

// MemberByID finds the connection's membership with the client's id.
func (c *Conn) MemberByID(id uint32) *Member {
	if c.GroupByID != nil {
		return c.GroupByID[id]
	}
	for _, n := range c.Groups {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// Session is the durable session that a connection holds, and its tracks.
type Session struct {
	sessions.Session
	Kept    int        // bytes that its connection is charged
	Changed []TrackRef // whose cursors are to be saved
	// Leaving: the connection has let go, and its last positions are being handed in; LookedAt
	// counts the tracks that were looked at for them, LastRef is the ref of the Save that ends the
	// hold.
	Leaving  bool
	LookedAt int
	Stamp    uint32 // of the last ephemeral message queued for its subscriptions that have no track
	LastRef  uint32
}
