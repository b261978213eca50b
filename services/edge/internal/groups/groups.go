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
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
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
	Lease time.Duration
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
// everything.
type Groups struct {
	cfg   Config
	ops   *serial.Queue
	work  *lifecycle.Group
	lives atomic.Int64 // messages in ops
	Stats Stats

	// Its own.
	now      time.Time
	ticked   time.Time // when clock was called last
	draining bool
	groups   map[string]*share // by the session's name
	members  map[memberKey]*member
	byID     map[uint64]*member
	lastID   uint64
	links    map[string]*link
	heard    map[string]*heard
	dead     map[string]time.Time // edges that did not answer, since when
	local    []func()             // what this edge says to itself, in order
	// ackedHere counts what all groups remember of ACKs.
	ackedHere int

	dispatchers map[uint32]*dispatcher
	lastSlot    uint32
	wanting     topic.Index[*dispatcher]
	matched     []*dispatcher
	busy        map[*dispatcher]bool // have something to take out
	renewing    bool
	renewAt     time.Time
}

// Stats of the groups of an edge.
type Stats struct {
	// Dispatchers and Members here now.
	Dispatchers, Members atomic.Int64
	// Assigned messages, Redelivered ones among them, Missed ones that retention took, Expired and
	// NoMember ephemeral ones that went to nobody.
	Assigned, Redelivered, DeadLetters, Missed, Expired, NoMember atomic.Uint64
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
	return &Groups{
		cfg: cfg, ops: serial.New(), work: lifecycle.NewGroup(context.Background()), groups: map[string]*share{}, members: map[memberKey]*member{}, byID: map[uint64]*member{},
		links: map[string]*link{}, heard: map[string]*heard{}, dead: map[string]time.Time{}, dispatchers: map[uint32]*dispatcher{}, busy: map[*dispatcher]bool{},
		lastID: cfg.Incarnation, // so that the numbers of an earlier process don't come again
	}
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
		defer close(done)
		g.draining = true
		for _, d := range g.dispatchers {
			g.release(d)
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
		select {
		case <-ctx.Done():
			return
		case <-g.ops.Ready():
			g.now = time.Now()
			g.ops.Run()
		case <-wake.C:
			g.now = time.Now()
			for _, d := range g.dispatchers {
				g.busy[d] = true
			}
		}
		if !g.idle() && g.now.Sub(g.ticked) >= tick {
			g.ticked = g.now
			g.clock()
		}
		g.rest()
		wake.Reset(g.next())
	}
}

// idle says that clock has nothing to look at. Few edges have groups, and wakes are what an edge
// with idle connections pays for.
func (g *Groups) idle() bool {
	return len(g.groups)+len(g.dispatchers)+len(g.links)+len(g.dead) == 0 && g.Stats.Dispatchers.Load()+g.Stats.Members.Load() == 0
}

// rest does what has come of it.
func (g *Groups) rest() {
	for len(g.local) > 0 || len(g.busy) > 0 {
		for len(g.local) > 0 {
			all := g.local
			g.local = nil
			for _, f := range all {
				f()
			}
		}
		for d := range g.busy {
			delete(g.busy, d)
			g.takeOut(d)
		}
	}
	for _, l := range g.links {
		g.pump(l)
	}
}

// next is how long until the clock or a dispatcher has something to do.
func (g *Groups) next() time.Duration {
	least := time.Hour
	if !g.idle() {
		least = tick - g.now.Sub(g.ticked)
	}
	for _, d := range g.dispatchers {
		if at := d.core.Next(); at > 0 {
			least = min(least, time.Duration(at)-d.since(g.now))
		}
	}
	return max(least, time.Millisecond)
}

// clock is what has to be looked at from time to time alone.
func (g *Groups) clock() {
	for _, s := range g.groups {
		g.tend(s)
		g.forgetAcked(s)
	}
	for _, d := range g.dispatchers {
		g.tendDispatcher(d)
	}
	for _, l := range g.links {
		g.tendLink(l)
	}
	for edge, since := range g.dead {
		if g.now.Sub(since) > 2*g.cfg.Lease {
			delete(g.dead, edge)
		}
	}
	g.renew()
	g.Stats.Dispatchers.Store(int64(len(g.dispatchers)))
	g.Stats.Members.Store(int64(len(g.members)))
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
		g.ops.Do(func() {
			g.lives.Add(-n)
			g.live(e.Messages)
		})
	case exchange.Joined:
		g.ops.Do(func() { g.joined(e) })
	case exchange.Range:
		g.ops.Do(func() { g.ranged(&e) })
	case exchange.Saved:
		g.ops.Do(func() { g.saved(e) })
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
