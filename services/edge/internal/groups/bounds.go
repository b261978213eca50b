package groups

import (
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/assignment"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/quota"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Bounds of the groups of an edge; 0: none.
type Bounds struct {
	// Groups that have members here or are dispatched here.
	Groups int
	// Memory is the bytes that they keep, about.
	Memory int
	// Rate is how many groups a connection may have made here in a second. A group is made by its
	// first member here, whether it is stored already or not: that is known once the store has been
	// asked.
	Rate int
	// Address is how many groups the members of one address (GroupJoin.Origin) may have made here.
	Address int
}

// Bytes that each thing takes that is kept, about, without what it points to.
const (
	shareBytes      = 512
	memberBytes     = 512
	dispatcherBytes = 768
	hasBytes        = 128
	settledBytes    = 128
)

// fullFor is when who is refused for lack of room may try again.
const fullFor = time.Second

// bounds is what is used of them.
type bounds struct {
	Bounds
	rate      *quota.Rate[exchange.Conn]
	memory    quota.Memory
	addresses quota.Share[string] // groups, by who has made them
	// hungry are dispatchers, by slot, that keep messages out until memory comes free.
	hungry walk.FIFO[uint32]
}

func newBounds(b Bounds) bounds {
	return bounds{Bounds: b, rate: quota.NewRate[exchange.Conn](b.Rate), memory: quota.NewMemory(int64(b.Memory)), addresses: quota.NewShare[string](b.Address)}
}

// admits says why a connection may not become a member. Nothing is noted of who is refused, and the
// rate is not charged for it.
func (g *Groups) admits(conn exchange.Conn, j *exchange.GroupJoin) error {
	if err := checkPositions(j); err != nil {
		return err
	}
	s := g.groups[j.Group+"/"+j.Filter]
	if s != nil && s.open > 0 && s.key != j.Key {
		return errOtherKey
	}
	if !g.bounds.memory.Takes() {
		g.Stats.Overloaded.Add(1)
		return code.Retry(wirev1.Code_CODE_OVERLOADED, fullFor, "the groups of this edge take too much memory")
	}
	if s != nil {
		return nil
	}
	if most := g.bounds.Groups; most > 0 && len(g.groups) >= most {
		g.Stats.Overloaded.Add(1)
		return code.Retry(wirev1.Code_CODE_OVERLOADED, fullFor, fmt.Sprintf("this edge has %d groups, which is the most", most))
	}
	if !g.bounds.addresses.Fits(j.Origin) {
		g.Stats.AddressFull.Add(1)
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, fmt.Sprintf("clients of this address have made %d groups on this edge, which is the most (--address-groups)", g.bounds.Address))
	}
	if wait := g.bounds.rate.Take(conn, g.now); wait > 0 {
		g.Stats.RateLimited.Add(1)
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, max(wait, time.Millisecond), fmt.Sprintf("this connection has more than %d groups made in a second", g.bounds.Rate))
	}
	return nil
}

// pays has a group served in a connection's turns. From now on it counts for the connection's
// address, where that has room for one more; else for the one that it has counted for so far, so
// that no address has more than its share, whoever leaves it a group.
func (g *Groups) pays(s *share, conn exchange.Conn, origin string) {
	s.payer = conn
	if origin != s.origin && g.bounds.addresses.Fits(origin) {
		g.bounds.addresses.Remove(s.origin)
		g.bounds.addresses.Add(origin)
		s.origin = origin
	}
}

// weigh counts what a dispatcher keeps by now, and notes whether it waits for memory.
func (g *Groups) weigh(d *dispatcher) {
	n := dispatcherBytes + d.core.Memory()
	g.bounds.memory.Add(n - d.weighs)
	d.weighs = n
	if d.core.Starved() && !d.hungry {
		d.hungry = true
		g.Stats.MemoryWaits.Add(1)
		g.bounds.hungry.Push(d.conn.Slot)
	}
}

// feeds reports whether there is memory for somebody who waits for it.
func (g *Groups) feeds() bool { return g.bounds.hungry.Len() > 0 && g.bounds.memory.Eased() }

// feed has a dispatcher that waits for memory go on.
func (g *Groups) feed() bool {
	if !g.feeds() {
		return false
	}
	slot, _ := g.bounds.hungry.Pop()
	if d := g.dispatchers[slot]; d != nil {
		d.hungry = false
		g.isBusy(d)
	}
	return true
}

// fits reports whether a dispatcher may follow so many topics.
func (g *Groups) fits(topics int) bool { return g.bounds.memory.Fits(assignment.MemoryOf(topics)) }

// weight of a share or a member with its names.
func (s *share) weight() int { return shareBytes + 2*len(s.name) }

func (m *member) weight() int {
	return memberBytes + len(m.join.Key) + positionBytes*len(m.join.Start.Positions)
}

// positionBytes is a position of a Subscribe, about.
const positionBytes = 128
