// Package hub is what one event loop knows and decides: connections, subscriptions, topics, windows. It has no socket, goroutine, lock or
// clock: frames, events and time come in, frames and calls of the mesh go out. The loop package moves the bytes.
//
// Whatever grows with subscribers or backlog (fan-out, replay, teardown) waits in queues of the hub, and Work takes a bounded slice of it.
package hub

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/wheel"
)

// Tick is how coarse the hub's times are.
const Tick = 100 * time.Millisecond

// Config of a hub. Mesh's methods must not block.
type Config struct {
	Loop      uint16
	EdgeID    string
	Mesh      exchange.Mesh
	PolicyFor func(topic string) *policy.Policy
	Limits    Limits
	// LiveDone is called once a Live event was fanned out to its end.
	LiveDone func(exchange.Live)
}

// Hub is used by one goroutine alone.
type Hub struct {
	cfg   Config
	lim   Limits
	mesh  exchange.Mesh
	now   int64  // nanoseconds, monotonic
	wall  uint64 // Unix time in microseconds
	stats Stats

	conns     conns
	subSlab   slab.Slab[sub]
	tracks    slab.Slab[track]
	texts     slab.Texts
	connMores slab.Pool[connMore]
	trackMore slab.Pool[trackMore]
	pendings  slab.Pool[pending]
	outboxes  slab.Pool[outbox]
	states    slab.Pool[topicState]
	filterSet slab.Pool[filter]

	wheel   *wheel.Wheel
	topics  map[string]*topicState
	filters map[string]*filter
	wild    topic.Index[*filter]
	matched []*filter
	wildLog wildLog
	// policies counts changes of policies: a topic with another number asks again.
	policies uint32

	inbox    fifo[inbound]
	fan      fanout
	runnable fifo[trackRef] // behind, and able to go on
	wakes    []*conn        // a window or queue opened: their waiting tracks are looked at
	resumed  []uint32       // slots that may read again
	dirty    []uint32       // slots with something to flush or to end
	deep     []uint32       // slots whose queue has grown long
	jobs     fifo[job]

	rings   rings
	arena   []byte
	scratch []byte   // headers and tails of the writes in hand
	ids     []uint32 // of the subscriptions of one message
	found   []*track
	gens    uint32    // given to subscriptions and tracks, so that what refers to one that is gone is seen
	windows []*window // that no track uses
	pinned  int       // ranges held by tracks
	// gathering: scratch is of writes in hand.
	gathering bool
	// counting numbers the topics counted, so that no connection counts twice.
	counting uint32
	countJob *count
	drain    *drain
}

// job is something long, cut into slices: step does one and says whether it is done.
type job interface{ step(h *Hub) (done bool) }

// New makes an empty hub.
func New(cfg Config) *Hub {
	if cfg.LiveDone == nil {
		cfg.LiveDone = func(exchange.Live) {}
	}
	cfg.Limits.defaults()
	return &Hub{
		cfg: cfg, lim: cfg.Limits, mesh: cfg.Mesh, wheel: wheel.New(int64(Tick)), topics: map[string]*topicState{}, filters: map[string]*filter{}, wildLog: wildLog{base: 1},
		scratch: make([]byte, 0, 16<<10),
	}
}

// SetTime tells what time it is: monotonic nanoseconds since any point, and Unix microseconds.
func (h *Hub) SetTime(now int64, wall uint64) { h.now, h.wall = now, wall }

// Stats of the hub; gauges are up to date.
func (h *Hub) Stats() Stats {
	s := h.stats
	s.Topics = int64(len(h.topics))
	return s
}

// Limits bound what one connection and one loop may hold; zero values take the defaults.
type Limits struct {
	MaxFrame         int // bytes of a frame's body after Welcome
	Connections      int // per loop
	Subscriptions    int // per connection
	WildcardTopics   int // a wildcard with ack, a session or a start other than LIVE
	QueueMessages    int // per connection
	QueueBytes       int // per connection
	LoopQueueBytes   int // all queues of the loop together
	PublishWindow    int // per connection
	ReceiveWindow    uint32
	HandshakeTimeout time.Duration
	ReadBytes        int // asked for at a time by a subscription that is behind
}

func (l *Limits) defaults() {
	set(&l.MaxFrame, 1<<20)
	set(&l.Connections, 1<<20)
	set(&l.Subscriptions, 1000)
	set(&l.WildcardTopics, 1000)
	set(&l.QueueMessages, 1024)
	set(&l.QueueBytes, 1<<20)
	set(&l.LoopQueueBytes, 512<<20)
	set(&l.PublishWindow, 64)
	set(&l.ReceiveWindow, 256)
	set(&l.HandshakeTimeout, 5*time.Second)
	set(&l.ReadBytes, 128<<10)
}

func set[V int | uint32 | time.Duration](v *V, otherwise V) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Event takes an answer or a request of the mesh.
func (h *Hub) Event(e exchange.Event) {
	switch e := e.(type) {
	case exchange.Live:
		h.inbox.push(inbound{live: e})
	case exchange.Range:
		h.ranged(&e)
	case exchange.Joined:
		h.forConn(e.Conn, func(c *conn) { h.joined(c, e) })
	case exchange.Attached:
		h.forConn(e.Conn, func(c *conn) { h.attached(c, e) })
	case exchange.Saved:
		h.saved(e)
	case exchange.Published:
		h.forConn(e.Conn, func(c *conn) { h.published(c, e) })
	case exchange.Detached:
		h.forConn(e.Conn, h.detached)
	case exchange.Yield:
		h.forConn(e.Conn, h.yield)
	case exchange.PoliciesChanged:
		h.policies++
	case exchange.Disconnect:
		h.jobs.push(&disconnect{event: e})
	case exchange.Count:
		h.jobs.push(&count{event: e})
	case exchange.Drain:
		h.beginDrain(e)
	}
}

// forConn finds the connection of a handle that is not stale.
func (h *Hub) forConn(at exchange.Conn, f func(*conn)) {
	c := h.conns.get(at.Slot)
	if c == nil || c.gen != at.Gen || c.state == stateFree || c.state == stateClosing {
		h.stats.StaleEvents++
		return
	}
	f(c)
}

// Work does at most about budget units of what waits in the hub's queues, a unit being a delivery or about as much, and
// says whether anything is left.
func (h *Hub) Work(budget int) (more bool) {
	for budget > 0 {
		n := h.fanSlice(min(budget, fanSlice)) + h.replaySlice() + h.wakeSlice() + h.jobSlice()
		if n == 0 {
			break
		}
		budget -= n
	}
	return h.queued()
}

// Busy says whether Work, Dirty or Resumed have something to do.
func (h *Hub) Busy() bool { return len(h.dirty) > 0 || len(h.resumed) > 0 || h.queued() }

func (h *Hub) queued() bool {
	return h.fan.active() || h.inbox.len() > 0 || h.runnable.len() > 0 || len(h.wakes) > 0 || h.jobs.len() > 0
}

func (h *Hub) jobSlice() int {
	j, ok := h.jobs.pop()
	if !ok {
		return 0
	}
	if !j.step(h) {
		h.jobs.push(j)
	}
	return 64
}

// Tick fires what is due, at most about budget connections with few topics each; more says that some are left.
func (h *Hub) Tick(budget int) (more bool) {
	return h.wheel.Advance(h.now, budget, func(slot uint32) (cost int) {
		c := h.conns.get(slot)
		if c == nil || c.state == stateFree {
			return 1
		}
		h.timers(c)
		return 1 + len(c.tracks())/8
	})
}

func (h *Hub) handle(c *conn) exchange.Conn {
	return exchange.Conn{Loop: h.cfg.Loop, Slot: c.slot, Gen: c.gen}
}

func (h *Hub) policy(ts *topicState) *policy.Policy {
	if ts.policy == nil || ts.policies != h.policies {
		ts.policy, ts.policies = h.cfg.PolicyFor(ts.name), h.policies
	}
	return ts.policy
}

// newID is never 0.
func newID() uint64 { return rand.Uint64() | 1 }

func sessionWrite(s *session) *meshv1.SessionWrite {
	return &meshv1.SessionWrite{User: s.user, Name: s.name, Generation: s.generation}
}
