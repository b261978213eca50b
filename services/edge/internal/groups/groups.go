// Package groups runs shared subscriptions: for the members of this edge it finds the edge that
// dispatches for their group and talks to it, and for groups whose lease this edge holds it is the
// dispatcher. What is decided, package assignment decides; here are the lease, the links between
// edges and the clock.
//
// To the mesh the dispatchers of an edge are one more event loop: they join filters, are handed
// live messages in order, and read ranges of the log.
package groups

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/acked"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/pace"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// User under which groups are stored as sessions, named after group and filter. No client's user is
// called so.
const User = "$group"

// Store is what groups need of the store.
type Store interface {
	AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error)
	RenewLeases(ctx context.Context, req *meshv1.RenewLeasesRequest) *meshv1.RenewLeasesResponse
}

// Mesh is what a dispatcher asks of the mesh, as a loop does.
type Mesh interface {
	Join(conn exchange.Conn, sub uint32, filter string, heads bool, limit int)
	Leave(loop uint16, filter string)
	Read(loop uint16, topic string, epoch, from, to uint64, maxBytes int)
	Save(conn exchange.Conn, ref uint32, w *meshv1.SessionWrite, now bool)
	// Hold makes conn the holder of a session that was attached under a generation.
	Hold(conn exchange.Conn, user, name string, generation uint64)
	// Post hands an event to a loop.
	Post(loop uint16, e exchange.Event)
	// HasMembers says that the edge has members of a group with this filter, or none any more.
	// Calls for several groups with one filter are counted.
	HasMembers(filter string, has bool)
}

// Config of Groups.
type Config struct {
	Edge        string
	Incarnation uint64
	// Loop is the number by which the mesh knows the dispatchers.
	Loop  uint16
	Store Store
	Mesh  Mesh
	// Request sends a meshv1.GroupFrame to another edge and returns its answer.
	Request func(ctx context.Context, edge string, frame []byte) ([]byte, error)
	// Owner is the store that has a group's session, as far as is known; nil: one has all. It must
	// not block. Leases are kept apart by it: a store that is slow or away holds up its own.
	Owner func(user, name string) string
	// Durable reports whether a topic is, MaxAttempts how often a message of it is delivered before
	// it is a dead letter.
	Durable     func(topic string) bool
	MaxAttempts func(topic string) uint32
	// Traced has traceparents of messages looked up.
	Traced bool
	// Clock says what time it is in the mesh at a time of this process's; it must not block. nil:
	// the same.
	Clock func(time.Time) time.Time
	Log   *slog.Logger
	// Lease of a dispatcher; 0: 2.5 s.
	Lease  time.Duration
	Bounds Bounds
}

// Paces.
const (
	defaultLease = 2500 * time.Millisecond
	tick         = 100 * time.Millisecond
	askAgain     = 250 * time.Millisecond
	// joinPatience is how long a new member waits for a dispatcher before it is told that there is
	// none.
	joinPatience = 5 * time.Second
	// emptyFor is how long a group without members keeps its dispatcher: they may be coming back.
	emptyFor = 3 * time.Second
	// grace is how long a new dispatcher of a group that had one waits for members to say what they
	// have.
	grace = 500 * time.Millisecond
	// saveEvery is how long changed positions gather. A group's are one write for many ACKs, so
	// they don't wait for those of sessions.
	saveEvery = 200 * time.Millisecond
	readBytes = 256 << 10
	// liveWaiting bounds the live messages that wait here; beyond, the mesh keeps them and says so.
	liveWaiting = 8192
	// topicsMost bounds the topics of a group with wildcards, as of any subscription that ACKs.
	topicsMost = 1000
)

// Groups is a lifecycle.Part and an exchange.Loop; its methods never block. One goroutine owns
// everything. It works in slices and in turns: an operation costs what its own group and its own
// connection make it cost, however many groups others have.
type Groups struct {
	cfg   Config
	ops   *serial.Queue
	work  *lifecycle.Group
	lives atomic.Int64 // messages in ops and fans
	Stats Stats

	// Its own.
	now        time.Time
	began      time.Time // the zero of times at which leases are renewed
	ticked     time.Time // when clock was called last
	draining   bool
	groups     map[string]*share // by the session's name
	members    map[memberKey]*member
	byID       map[uint64]*member
	lastID     uint64
	links      map[string]*link
	heard      map[string]*heard
	dead       map[string]time.Time  // edges that did not answer, since when
	neighbours map[string]*neighbour // other edges
	owners     map[string]*owner     // of leases
	local      []func()              // what this edge says to itself, in order
	acks       *acked.Book           // remembered, of all groups

	dispatchers map[uint32]*dispatcher
	releasing   map[uint32]*share // by the slot of the dispatcher that hands over
	lastSlot    uint32
	hearing     hearing
	bounds      bounds
	// setup is what makes and ends members and dispatchers, busy are the dispatchers with something
	// to take out: both by the connection for which the group was made here.
	setup pace.Turns[exchange.Conn, func()]
	busy  pace.Turns[exchange.Conn, *dispatcher]
	due   pace.Times[timed]
	// leases are those that are to be renewed: they go before all else.
	leases pace.Times[*dispatcher]
	// renewals are answers of stores that wait to be taken.
	renewals walk.FIFO[renewal]
}

// timed is looked after at a time.
type timed interface{ tend(g *Groups) }

// Stats of the groups of an edge.
type Stats struct {
	// Groups, Dispatchers and Members here now, and the Memory that they take, in bytes.
	Groups, Dispatchers, Members, Memory atomic.Int64
	// Overloaded and RateLimited joins were refused, and those AddressFull because of their
	// address. MemoryWaits is how often a dispatcher kept messages out until memory comes free.
	Overloaded, RateLimited, AddressFull, MemoryWaits atomic.Uint64
	// Assigned messages, Redelivered ones among them, Missed ones that retention took, Expired and
	// NoMember ephemeral ones that went to nobody; TooMany ephemeral ones were of a topic of which
	// very many waited for very many groups.
	Assigned, Redelivered, DeadLetters, Missed, Expired, NoMember, TooMany atomic.Uint64
	// Grants of leases, Lost ones, edges that were taken for Dead, and BadFrames.
	Grants, Lost, Dead, BadFrames atomic.Uint64
}

// New makes groups.
func New(cfg Config) *Groups {
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Clock == nil {
		cfg.Clock = func(now time.Time) time.Time { return now }
	}
	if cfg.Owner == nil {
		cfg.Owner = func(string, string) string { return "" }
	}
	g := &Groups{
		cfg: cfg, began: time.Now(), ops: serial.New(), work: lifecycle.NewGroup(context.Background()), groups: map[string]*share{}, members: map[memberKey]*member{}, byID: map[uint64]*member{},
		links: map[string]*link{}, heard: map[string]*heard{}, dead: map[string]time.Time{}, neighbours: map[string]*neighbour{}, owners: map[string]*owner{},
		dispatchers: map[uint32]*dispatcher{}, releasing: map[uint32]*share{}, hearing: newHearing(), bounds: newBounds(cfg.Bounds),
		lastID: cfg.Incarnation, // so that the numbers of an earlier process don't come again
	}
	g.acks = acked.NewBook(cfg.Bounds.Memory/ackedPart, g.bounds.memory.Add)
	return g
}

// Start begins to serve.
func (g *Groups) Start(context.Context) error {
	g.work.Go("edge-groups", g.run)
	return nil
}

// Stop hands over what is dispatched here, and ends. What is to be written then, the sessions
// write.
func (g *Groups) Stop(ctx context.Context) error {
	g.Drain(ctx)
	return g.work.Stop(ctx)
}

// Drain hands over every group that is dispatched here. Members go on, with a dispatcher elsewhere,
// until they leave.
func (g *Groups) Drain(ctx context.Context) {
	done := make(chan struct{})
	g.ops.Do(func() {
		g.draining = true
		left := len(g.dispatchers)
		if left == 0 {
			close(done)
		}
		for _, d := range g.dispatchers {
			g.setup.Push(d.of.payer, func() {
				if g.dispatchers[d.conn.Slot] == d {
					g.release(d)
				}
				if left--; left == 0 {
					close(done)
				}
			})
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
	case <-g.work.Context().Done():
	}
}

func (g *Groups) run(ctx context.Context) {
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		if g.waits() {
			select {
			case <-ctx.Done():
				return
			default:
			}
		} else {
			wake.Reset(g.next())
			select {
			case <-ctx.Done():
				return
			case <-g.ops.Ready():
			case <-wake.C:
			}
		}
		g.now = time.Now()
		g.ops.Run()
		g.turn()
	}
}

// waits reports whether there is something to do at once.
func (g *Groups) waits() bool {
	return len(g.local)+g.busy.Len()+g.setup.Len()+g.renewals.Len()+g.hearing.fans.Len() > 0 || g.feeds() || g.due.Is(g.now) || g.leases.Is(g.now)
}

// slice is how long a turn takes, about: what comes meanwhile waits for it.
const slice = 500 * time.Microsecond

// turn does what is to be done, for a slice at most.
func (g *Groups) turn() {
	end := g.now.Add(slice)
	for n := 1; g.step(); n++ {
		if n%4 == 0 {
			if g.now = time.Now(); g.now.After(end) {
				break
			}
		}
	}
	g.clock()
	g.askOwners()
	for _, l := range g.links {
		g.pump(l)
	}
	g.Stats.Dispatchers.Store(int64(len(g.dispatchers)))
	g.Stats.Members.Store(int64(len(g.members)))
	g.Stats.Groups.Store(int64(len(g.groups)))
	g.Stats.Memory.Store(g.bounds.memory.Used())
}

// busyInAStep is how many dispatchers are taken out for one thing of each other kind: messages go
// before what makes and keeps groups.
const busyInAStep = 8

// leasesInAStep is how many leases are put to their owner's: the rest of a step takes far longer.
const leasesInAStep = 256

// step does one thing of each kind, and reports whether there was any.
func (g *Groups) step() (did bool) {
	g.say()
	for range leasesInAStep {
		d, ok := g.leases.Take(g.now)
		if !ok {
			break
		}
		did, d.renewAt = true, time.Time{}
		g.ownerOf(d.of).leases.Push(d)
	}
	did = g.fan() || did
	did = g.feed() || did
	did = g.takeRenewals() || did
	for range busyInAStep {
		d, ok := g.busy.Pop()
		if !ok {
			break
		}
		did, d.busy = true, false
		g.takeOut(d)
		g.say()
	}
	if one, ok := g.due.Take(g.now); ok {
		did = true
		one.tend(g)
	}
	if f, ok := g.setup.Pop(); ok {
		did = true
		f()
	}
	return did || len(g.local) > 0
}

// say takes what this edge says to itself.
func (g *Groups) say() {
	for len(g.local) > 0 {
		all := g.local
		g.local = nil
		for _, f := range all {
			f()
		}
	}
}

// next is how long until there is something to do. Few edges have groups, and wakes are what an
// edge with idle connections pays for.
func (g *Groups) next() time.Duration {
	least := time.Hour
	if len(g.links)+len(g.dead) > 0 {
		least = tick - g.now.Sub(g.ticked)
	}
	if at, ok := g.due.Next(); ok {
		least = min(least, at.Sub(g.now))
	}
	if at, ok := g.leases.Next(); ok {
		least = min(least, at.Sub(g.now))
	}
	return max(least, time.Millisecond)
}

// clock looks after other edges from time to time.
func (g *Groups) clock() {
	if len(g.links)+len(g.dead) == 0 || g.now.Sub(g.ticked) < tick {
		return
	}
	g.ticked = g.now
	for _, l := range g.links {
		g.tendLink(l)
	}
	for edge, since := range g.dead {
		if g.now.Sub(since) > 2*g.cfg.Lease {
			delete(g.dead, edge)
		}
	}
}

// later does something in a connection's turn.
func (g *Groups) later(conn exchange.Conn, f func()) {
	g.ops.Do(func() { g.setup.Push(conn, f) })
}

// ofDispatcher does something with a dispatcher, if it is there: first at once, then in its turn.
func (g *Groups) ofDispatcher(conn exchange.Conn, first, then func(d *dispatcher)) {
	g.ops.Do(func() {
		if d := g.dispatchers[conn.Slot]; d != nil {
			first(d)
			g.inTurn(d, then)
		}
	})
}

// inTurn does something with a dispatcher in its turn, if it is still there then.
func (g *Groups) inTurn(d *dispatcher, f func(d *dispatcher)) {
	g.setup.Push(d.of.payer, func() {
		if g.dispatchers[d.conn.Slot] == d {
			f(d)
		}
	})
}

// Post implements exchange.Loop.
func (g *Groups) Post(e exchange.Event) bool {
	switch e := e.(type) {
	case exchange.Live:
		n := int64(len(e.Messages))
		if waiting := g.lives.Add(n); waiting > liveWaiting && waiting > n {
			g.lives.Add(-n)
			return false
		}
		g.ops.Do(func() { g.live(e.Messages) })
	case exchange.Joined:
		g.ofDispatcher(e.Conn, func(d *dispatcher) { d.answered = true }, func(d *dispatcher) { g.joined(d, e) })
	case exchange.Range:
		g.ops.Do(func() { g.ranged(&e) })
	case exchange.Saved:
		g.saved(e)
	case exchange.Detached:
		g.ops.Do(func() { g.detached(e) })
	case exchange.Count:
		e.Reply(make([]uint64, len(e.Topics)))
	case exchange.Disconnect:
		e.Reply(0)
	}
	return true
}

var _ exchange.Loop = (*Groups)(nil)
