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
	Waits bool // has messages that wait for a window or the queue
	Runs  bool // in line to go on
	// Of its messages, how many Unacked and TimedOut of the connection have in them.
	CountedUnacked, CountedLate uint32
}

// MemberByRef finds the membership that the mesh means.
func (c *Conn) MemberByRef(ref uint32) *Member {
	for _, n := range c.Groups {
		if n.Ref == ref {
			return n
		}
	}
	return nil
}

// MemberByID finds the membership that the client means.
func (c *Conn) MemberByID(id uint32) *Member {
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
	Changed []TrackRef // whose cursors are to be saved
	// Leaving: the connection has let go, and its last positions are being handed in; LookedAt
	// counts the tracks that were looked at for them, LastRef is the ref of the Save that ends the
	// hold.
	Leaving  bool
	LookedAt int
	Stamp    uint32 // of the last ephemeral message queued for its subscriptions that have no track
	LastRef  uint32
}
