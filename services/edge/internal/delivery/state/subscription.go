package state

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/starts"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// Subscription is one subscription of one connection. It lies in Subscriptions.Slab: lists that may
// outlive it hold a SubscriptionRef.
type Subscription struct {
	Conn              *Conn
	Topic             *Topic // without wildcards
	*SubscriptionMore        // NoSubscriptionMore where it has nothing of that
	*Pending                 // nil once it is open
	Gen               uint32
	ID                uint32 // the client's
	Ref               uint32 // names it to the mesh; never used twice on a connection
	AtConn            uint32 // in Conn.Subs
	Since             uint32 // when it was made, Unix time in seconds
	Window            uint16 // 0: only the connection's, which is greater
	Kind              Kind
	ACK               bool
	Wildcard          bool
	Active            bool  // it has its tracks
	Open              bool  // Subscribed was sent
	Overflow          uint8 // wirev1.Overflow
	// it does not know the heads of its topics, and begins with what comes first
	Headless bool
	Dead     bool
	Filtered bool // it has a content filter
	Unjoined bool // it waits for the number of that, and the mesh has no Join of it
}

// SubscriptionMore is what one with wildcards or a content filter, or that is ranked
// or wants no echo, has beside.
type SubscriptionMore struct {
	Wild   *Filter
	At     uint32 // in Wild.Subscriptions
	Topics uint32 // tracks at topics that it did not name
	Where  uint32 // number of its content filter; 0: not known yet, or none
	Origin uint64 // of its own messages, which it does not want; 0: it wants them
	TopK   uint32 // of the best; 0: it is not ranked
	Kept   uint32 // bytes that its connection is charged
	// Joined is the serial of the window of ephemeral candidates that it joined last.
	Joined uint64
}

// NoSubscriptionMore is that of subscriptions that have nothing of it.
var NoSubscriptionMore = slab.None[SubscriptionMore]()

// Pending is what a subscription has until it is open.
type Pending struct {
	Start  *starts.Start // until it begins
	Answer frames.Subscribed
	Heard  []*Topic // that something came live of meanwhile
	Begins bool     // its heads are known: what comes live is to be remembered for it
	// Exact says that it is of one topic and has asked to join it; that was at SeqBefore then, of
	// EpochBefore, as far as the loop knew.
	Exact                  bool
	SeqBefore, EpochBefore uint64
}

// OwedFrom is behind what a subscription to one topic is owed all of the topic's log, and whether
// it is owed any: what came since it asked to join, for the log has begun since, or the topic's
// namespace became durable. first is the seq that came first live; 0: it was not noted.
func (p *Pending) OwedFrom(ts *Topic, first uint64, placed bool) (from uint64, owed bool) {
	switch {
	case ts.Last == 0:
		return 0, false
	case placed || p.SeqBefore > 0 && p.EpochBefore != ts.Epoch:
		return 0, true
	case p.SeqBefore > 0:
		return p.SeqBefore, p.SeqBefore < ts.Last
	}
	return max(first, 1) - 1, first > 0
}

// Filter that the client named.
func (s *Subscription) Filter() string {
	if s.Wildcard {
		return s.Wild.Name
	}
	return s.Topic.name
}

// SubscriptionRef finds a subscription, or nil once it is gone.
type SubscriptionRef struct {
	S   *Subscription
	gen uint32
}

// Handle may outlive the subscription; that of nil finds none.
func (s *Subscription) Handle() SubscriptionRef {
	if s == nil {
		return SubscriptionRef{}
	}
	return SubscriptionRef{s, s.Gen}
}

// Get finds the subscription.
func (r SubscriptionRef) Get() *Subscription {
	if r.S == nil || r.S.Gen != r.gen {
		return nil
	}
	return r.S
}

// Subscriptions are the subscriptions of one loop, but for members of groups.
type Subscriptions struct {
	Slab   slab.Slab[Subscription]
	Mores  slab.Slab[SubscriptionMore]
	Arrays *slab.Arrays
	Conns  *Conns
}

// More is the subscription's SubscriptionMore, to be written to.
func (p *Subscriptions) More(s *Subscription) *SubscriptionMore {
	if s.SubscriptionMore == NoSubscriptionMore {
		s.SubscriptionMore = p.Mores.Take()
	}
	return s.SubscriptionMore
}

// Picky reports whether it does not want every message: it has a content filter, or wants no echo.
func (s *Subscription) Picky() bool { return s.Filtered || s.Origin != 0 }

// Picks has it be judged which messages the subscription wants.
func (p *Subscriptions) Picks(s *Subscription) *SubscriptionMore {
	if s.Kind == KindPlain {
		s.Kind = KindOwn
	}
	return p.More(s)
}

// Add lists a subscription with its connection.
func (p *Subscriptions) Add(c *Conn, s *Subscription) {
	s.AtConn = uint32(c.Subs.Len())
	c.Subs.Append(p.Arrays, s)
	if c.ByID == nil && c.Subs.Len() > ManyOf {
		more := p.Conns.More(c)
		more.ByID, more.ByRef = map[uint32]*Subscription{}, map[uint32]*Subscription{}
		for _, s := range c.Subs.All() {
			more.ByID[s.ID], more.ByRef[s.Ref] = s, s
		}
	} else if c.ByID != nil {
		c.ByID[s.ID], c.ByRef[s.Ref] = s, s
	}
}

// Remove takes a subscription out of its connection's list.
func (p *Subscriptions) Remove(c *Conn, s *Subscription) {
	if moved := c.Subs.Take(p.Arrays, int(s.AtConn)); moved != nil {
		moved.AtConn = s.AtConn
	}
	if c.ByID == nil {
		return
	}
	delete(c.ByID, s.ID)
	delete(c.ByRef, s.Ref)
	if c.Subs.Len() == 0 {
		more := p.Conns.More(c)
		more.ByID, more.ByRef = nil, nil
		p.Conns.Less(c)
	}
}

// SubByRef finds the subscription that the mesh means.
func (c *Conn) SubByRef(ref uint32) *Subscription {
	if c.ByRef != nil {
		return c.ByRef[ref]
	}
	for _, s := range c.Subs.All() {
		if s.Ref == ref {
			return s
		}
	}
	return nil
}

// Bounded reports whether it may match a limited number of topics.
func (s *Subscription) Bounded() bool { return s.Wildcard && (s.ACK || s.Kind != KindPlain) }

// SubByID finds the subscription that the client means.
func (c *Conn) SubByID(id uint32) *Subscription {
	if c.ByID != nil {
		return c.ByID[id]
	}
	for _, s := range c.Subs.All() {
		if s.ID == id {
			return s
		}
	}
	return nil
}
