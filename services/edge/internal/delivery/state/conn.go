// Package state is what a loop knows of its clients: connections, their subscriptions, topics, and
// the tracks, which are where each connection stands in each topic. It finds them, links them and
// gives them back; package delivery decides what becomes of them.
package state

import (
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// Phase is how far a connection is, from its slot to the end.
type Phase uint8

// The phases.
const (
	Free    Phase = iota
	Fresh         // the first bytes have not come
	Hello         // waiting for the rest of Hello
	Waiting       // Hello has come, its session is being attached
	Open
	Closing // nothing is read any more; what is queued goes out, then the socket ends
)

// Conn is one connection. Conns.Slab owns it, where the collector does not look: strings are the
// loop's Texts, and what it points to lies in slabs and pools. Its socket belongs to the loop.
type Conn struct {
	Slot, Gen uint32
	Heartbeat uint32
	Window    uint32
	Unacked   uint32 // in the windows of all tracks
	TimedOut  uint32 // left the window un-ACKed and still are
	Waiting   uint32 // tracks that wait for a window or the queue
	NextRef   uint32
	Stamp     uint32 // of the last ephemeral message queued for plain subscriptions
	Counted   uint32 // the serial of the count that counted it last
	Since     uint32 // Hello, Unix time in seconds
	Heard     uint32 // when bytes came last, as Hub.ms
	Link      linkhealth.Link
	Phase     Phase
	Dirty     bool  // in Conns.Dirty
	Waking    bool  // a walk over those of its tracks that wait is due
	Rewake    bool  // once more, when it was looked at
	Draining  bool  // GOAWAY was sent: no first delivery any more
	Ended     bool  // the socket is gone
	Torn      bool  // teardown is done
	Detached  bool  // holds its session no more
	Visited   bool  // its tracks are being looked at for what is due
	Backend   bool  // a router's, for a backend
	Why       uint8 // of Closing: the Code
	Pings     Pings // how it is asked for a sign of life, and whether it was

	ClientID string
	Deadline int64 // handshake, closing, drain; 0: none

	Subs   slab.List[Subscription]
	Tracks slab.List[Track]
	Out    sendq.Queue
	*ConnMore
}

// ConnMore is what few connections have at a time. It is written through Conns.More alone: without
// any it is NoConnMore.
type ConnMore struct {
	ByID      map[uint32]*Subscription // of subscriptions, once there are many
	ByRef     map[uint32]*Subscription // the same
	ByTopic   map[*Topic][]*Track      // of tracks, once there are many
	Publishes []Publish                // that are not answered
	// the address that these count for; "": none
	PublishFrom string
	Session     *Session
	Groups      []*Member
	// Of Groups, once there are many.
	GroupByID, GroupByRef map[uint32]*Member
	Claims                *claims.Held // nil: it claims nothing
	// What its messages are ranked for; nil: nothing is known.
	Profile *exchange.Profile
	// An Ack in hand goes on at AckAt of its body, with the entry AckSerial where that is not 0.
	AckAt, AckSerial uint32
	Turn             uint32 // the next walk over those that wait begins behind this place
	// when the first bytes came of a frame that has not come whole; 0: there is none
	Begun int64

	// bytes that have left the queue, and wait for the socket in another form
	Outside uint32
	Secure  exchange.Security // until Hello
	HungUp  bool              // before it was welcomed: nobody waits for the answer to its Hello
	Parked  bool              // a request of it waits for a permission, and it is not read
}

// NoConnMore is that of connections that have nothing of it.
var NoConnMore = slab.None[ConnMore]()

// Conns holds connections by slot; pointers stay good for the life of the loop, handles until the
// slot is freed.
type Conns struct {
	Slab    slab.Slab[Conn]
	Mores   slab.Pool[ConnMore]
	free    []uint32
	Resumed []uint32 // may read again
	Dirty   []uint32 // have something to flush or to end
	Closed  []uint32 // only the socket is left of them
	Silent  []uint32 // are to be asked for a sign of life by the loop
}

// Get is the connection of a slot; nil: there was never one.
func (s *Conns) Get(slot uint32) *Conn {
	if int(slot) >= s.Slab.Len() {
		return nil
	}
	return s.Slab.At(int(slot))
}

// Generation of a slot at present; 0: there was never a connection in it.
func (s *Conns) Generation(slot uint32) uint32 {
	if c := s.Get(slot); c != nil {
		return c.Gen
	}
	return 0
}

// Len is how many slots there are.
func (s *Conns) Len() uint32 { return uint32(s.Slab.Len()) }

// Take makes a connection of a slot that is free.
func (s *Conns) Take() *Conn {
	var c *Conn
	if n := len(s.free); n > 0 {
		c = s.Get(s.free[n-1])
		s.free = s.free[:n-1]
	} else {
		c = s.Slab.Take()
		c.Slot = s.Len() - 1
	}
	c.reset()
	c.Gen = max(c.Gen, 1)
	return c
}

// reset leaves the slot and its generation.
func (c *Conn) reset() {
	*c = Conn{Slot: c.Slot, Gen: c.Gen, Waking: c.Waking, Dirty: c.Dirty, Out: sendq.Empty, ConnMore: NoConnMore}
}

// More is the connection's ConnMore, to be written to.
func (s *Conns) More(c *Conn) *ConnMore {
	if c.ConnMore == NoConnMore {
		c.ConnMore = s.Mores.Take()
	}
	return c.ConnMore
}

// Less gives ConnMore back where nothing is in it.
func (s *Conns) Less(c *Conn) {
	m := c.ConnMore
	if m != NoConnMore && m.ByID == nil && m.ByTopic == nil && m.Publishes == nil && m.Session == nil && m.Groups == nil && m.Claims == nil && m.Profile == nil && m.AckAt == 0 && m.AckSerial == 0 && m.Turn == 0 && m.Begun == 0 &&
		m.Outside == 0 && m.Secure == exchange.Plain && !m.HungUp && !m.Parked {
		s.Mores.Give(m)
		c.ConnMore = NoConnMore
	}
}

// DropMore gives ConnMore back whatever is in it.
func (s *Conns) DropMore(c *Conn) {
	if c.ConnMore != NoConnMore {
		s.Mores.Give(c.ConnMore)
		c.ConnMore = NoConnMore
	}
}

// Free ends a slot. Its generation is the last thing to go: whatever still names the connection is
// stale from here on.
func (s *Conns) Free(c *Conn) {
	c.reset()
	c.Gen = max(c.Gen+1, 1)
	s.Released(c)
}

// Released gives back the slot of a connection that was freed while it stood in a list.
func (s *Conns) Released(c *Conn) {
	if c.Phase == Free && !c.Waking && !c.Dirty {
		s.free = append(s.free, c.Slot)
	}
}

// MarkDirty notes that a connection has something to flush or to end.
func (s *Conns) MarkDirty(c *Conn) {
	if !c.Dirty {
		c.Dirty = true
		s.Dirty = append(s.Dirty, c.Slot)
	}
}

// TakeDirty appends the slots that have something to flush or to end, once.
func (s *Conns) TakeDirty(dst []uint32) []uint32 {
	for _, slot := range s.Dirty {
		c := s.Get(slot)
		c.Dirty = false
		if c.Phase == Free {
			s.Released(c)
			continue
		}
		dst = append(dst, slot)
	}
	s.Dirty = s.Dirty[:0]
	return dst
}

// TakeResumed appends the slots that may read again, once.
func (s *Conns) TakeResumed(dst []uint32) []uint32 {
	dst = append(dst, s.Resumed...)
	s.Resumed = s.Resumed[:0]
	return dst
}

// TakeClosed appends up to n slots of which only the socket is left, once.
func (s *Conns) TakeClosed(dst []uint32, n int) []uint32 {
	n = min(n, len(s.Closed))
	dst = append(dst, s.Closed[:n]...)
	s.Closed = s.Closed[:copy(s.Closed, s.Closed[n:])]
	return dst
}

// User that the connection's session belongs to.
func (c *Conn) User() string {
	return exchange.UserOf(c.ClientID, c.Backend)
}

// Patience is how long the connection may be silent, in nanoseconds: 2.5 heartbeats.
func (c *Conn) Patience() int64 { return int64(c.Heartbeat) * int64(time.Millisecond) * 5 / 2 }

// Displaced notes that tracks or groups of a connection have other places.
func (c *Conn) Displaced() {
	if c.Waking {
		c.Rewake = true
	}
}

// SilentUntil is when the connection will have been silent for too long. One that is not read
// because of the edge is not silent.
func (c *Conn) SilentUntil(now int64, ms uint32) int64 {
	if c.Parked {
		return now + c.Patience()
	}
	return now - int64(ms-c.Heard)*int64(time.Millisecond) + c.Patience()
}

// Park has a connection not be read, or read again, from now on, and says when its timers, which
// rest meanwhile, are to be looked at.
func (s *Conns) Park(c *Conn, parked bool, now int64) (next int64) {
	s.More(c).Parked = parked
	if c.Heard = uint32(now / int64(time.Millisecond)); !parked {
		s.Less(c)
		s.Resumed = append(s.Resumed, c.Slot)
	}
	return now
}

// Whole notes that nothing of a frame is left that has begun.
func (s *Conns) Whole(c *Conn) {
	if c.Begun != 0 {
		s.More(c).Begun = 0
		s.Less(c)
	}
}

// SetProfile has the connection's messages ranked for p from now on. The rankings that are asked
// for already are of the one before.
func (s *Conns) SetProfile(c *Conn, p *exchange.Profile) {
	if p != c.Profile {
		s.More(c).Profile = p
		s.Less(c)
	}
}

// Places of a walk over the connection's tracks, and its groups behind them.
func (c *Conn) Places() uint32 { return uint32(c.Tracks.Len() + len(c.Groups)) }

// InUse reports whether an id stands for something that is not over.
func (c *Conn) InUse(id uint32) bool {
	return c.SubByID(id) != nil || c.MemberByID(id) != nil || c.publishing(id) >= 0 || c.Claims.Asks(id)
}

// Asking is the connection as checks of its request with an id see it.
func (c *Conn) Asking(id uint32) request.Client {
	return request.Client{
		IDInUse: id != 0 && c.InUse(id), Backend: c.Backend, Draining: c.Draining, HasSession: c.Session != nil,
		Subscriptions: c.Subs.Len() + len(c.Groups), Publishes: len(c.Publishes),
	}
}

// ConnID names a connection among all that there are.
func ConnID(seed uint64, slot, gen uint32) uint64 {
	id := seed ^ (uint64(slot)<<32 | uint64(gen))
	id = (id ^ id>>33) * 0xff51afd7ed558ccd // the finalizer of MurmurHash3
	id = (id ^ id>>33) * 0xc4ceb9fe1a85ec53
	return (id ^ id>>33) | 1
}

// Holds reports whether reading waits: for Welcome, for what is parked, or because the client does
// not take its answers, of which it may have so many bytes.
func (c *Conn) Holds(answers int) bool {
	return c.Phase == Waiting || c.Parked && c.Phase == Open || c.Phase != Closing && c.Out.Answers() > answers
}
