// Package delivery is what one event loop knows and decides: connections, subscriptions, topics,
// windows. It has no socket, goroutine, lock or clock: frames, events and time come in, frames and
// calls of the mesh go out. The loop package moves the bytes.
//
// Whatever grows with subscribers or backlog (fan-out, replay, teardown) waits in queues of the
// hub, and Work takes a bounded slice of it.
package delivery

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/config"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/count"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/lag"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/native"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/wake"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/wheel"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
	"github.com/pushmesh/pushmesh/services/edge/internal/wildcards"
)

// Tick is how coarse the hub's times are.
const Tick = 100 * time.Millisecond

// Config is what a hub is made with.
type Config = config.Hub

// Limits of a hub.
type Limits = config.Limits

// Hub is used by one goroutine alone.
type Hub struct {
	cfg   Config
	lim   Limits
	rules request.Rules
	mesh  exchange.Mesh
	clock

	cost  walk.Cost // of walks that no slice has counted
	stats counters.Stats

	conns  state.Conns
	subs   state.Subscriptions
	texts  slab.Texts
	arrays slab.Arrays // of lists of tracks and subscriptions

	wheel  *wheel.Wheel
	topics state.Topics

	tracks    state.Tracks
	windows   windows
	kept      *kept.Accounts // of connections
	acks      acks
	fan       fanout
	replay    replayer
	waker     wake.Queue
	lagging   lag.List
	wildcards wildSubs
	starter   starter
	gaps      gapReporter
	sessions  sessionKeeper
	groups    groups
	ranked    rankedDelivery

	jobs   jobs
	rooms  rooms
	native native.Codec

	queues *sendq.Shared // of the send queues
	ids    []uint32      // of the subscriptions of one message
	// sending: some of what was gathered may have left without the hub knowing.
	sending  bool
	trimming func(*state.Conn) // tests see whose queue is trimmed
	counts   count.Desk
	links    linkhealth.Watch
	idSeed   uint64
}

// clock is what time it is in a turn.
type clock struct {
	now  int64  // nanoseconds, monotonic
	wall uint64 // Unix time in microseconds
	ms   uint32 // now in milliseconds, which wraps around
}

// New makes an empty hub.
func New(cfg Config) *Hub {
	cfg.Fill()
	h := &Hub{
		cfg: cfg, lim: cfg.Limits, mesh: cfg.Mesh, wheel: wheel.New(int64(Tick)),
		idSeed: rand.Uint64(),
	}
	h.rules = request.Rules{
		PolicyFor: cfg.PolicyFor, Refuses: cfg.Refuses, Namespaces: cfg.Principals.Namespaces, Subscriptions: h.lim.Subscriptions, WildcardTopics: h.lim.WildcardTopics, PublishWindow: h.lim.PublishWindow,
		Unknown: cfg.Unknown, Fits: h.fits,
	}
	h.native = native.Codec{Delivery: operations{h}, Rules: &h.rules, MaxFrame: h.lim.MaxFrame}
	h.links = linkhealth.NewWatch(cfg.Unhealthy, cfg.Gate)
	h.rooms = newRooms(h)
	h.groups = groups{hub: h, room: membership.New(h.port(), h.mesh, &h.rooms.jobs, &h.cost)}
	h.rooms.roster.Groups = h.groups.room
	h.windows.hub, h.acks.hub = h, h
	if cfg.Kept.Client == nil {
		cfg.Kept.Client = h.clientOf
	}
	if cfg.Kept.Address == nil {
		cfg.Kept.Address = h.originOf
	}
	h.kept = kept.New(cfg.Kept)
	h.subs = state.Subscriptions{Arrays: &h.arrays, Conns: &h.conns}
	h.tracks = state.Tracks{Arrays: &h.arrays, Conns: &h.conns, Topics: &h.topics, Cost: &h.cost}
	h.fan.hub, h.replay.hub, h.starter.hub, h.gaps.hub, h.sessions.hub = h, h, h, h, h
	h.waker, h.lagging = wake.New(h.port(), &h.conns), lag.New(h.port(), &h.rooms.jobs)
	h.starter.lines = map[exchange.Conn]*line{}
	h.wildcards = wildSubs{hub: h, index: wildcards.NewFilters[state.Subscription](), log: wildcards.NewLog[state.SubscriptionRef]()}
	h.counts.Config = count.Config{Jobs: &h.rooms.jobs, Conns: &h.conns, Topics: &h.topics, Filters: &h.wildcards.index, Groups: h.groups.room}
	share := cmp.Or(cfg.Budget, budget.New(int64(h.lim.QueueMemory), 1).Share(0))
	h.ranked = newRanked(h, share)
	h.topics = state.NewTopics(cfg.PolicyFor, &h.arrays, &h.texts)
	h.replay.pace.Most = h.lim.ReplayPace
	h.queues = sendq.NewShared(sendq.Limits{Messages: h.lim.QueueMessages, Bytes: h.lim.QueueBytes}, share, &h.cost)
	return h
}

// SetTime tells what time it is: monotonic nanoseconds since any point, and Unix microseconds.
func (h *Hub) SetTime(now int64, wall uint64) {
	h.now, h.wall, h.ms = now, wall, uint32(now/int64(time.Millisecond))
	h.queues.SetTime(h.ms, wall)
}

// Event takes an answer or a request of the mesh, and says how much that was, in deliveries.
func (h *Hub) Event(e exchange.Event) (cost int) {
	switch e := e.(type) {
	case exchange.Live:
		h.fan.inbox.Push(e)
	case exchange.Range:
		h.replay.ranged(&e)
	case exchange.Joined:
		h.forConn(e.Conn, func(c *state.Conn) { h.joined(c, e) })
	case exchange.Filtered:
		h.forConn(e.Conn, func(c *state.Conn) { h.filterReady(c, e) })
	case exchange.Attached:
		h.forConn(e.Conn, func(c *state.Conn) { h.sessions.attached(c, e) })
	case exchange.GroupJoined:
		h.forConn(e.Conn, func(c *state.Conn) { h.groups.joined(c, e) })
	case exchange.Assigned:
		h.forConn(e.Conn, func(c *state.Conn) { h.groups.assigned(c, e) })
	case exchange.GroupEnded:
		h.forConn(e.Conn, func(c *state.Conn) { h.groups.ended(c, e) })
	case exchange.Gathered:
		h.ranked.room.Ended(e.Serial)
	case exchange.Ranked:
		h.noteStale(h.ranked.room.Answered(e))
	case exchange.Saved:
		h.sessions.saved(e)
	case exchange.Published:
		h.forConn(e.Conn, func(c *state.Conn) { h.published(c, e) })
	case exchange.Claimed:
		h.forConn(e.Conn, func(c *state.Conn) { h.noteStale(h.rooms.claims.Answered(c.Claims, e)) })
	case exchange.ClaimTold:
		h.forConn(e.Conn, func(c *state.Conn) { h.noteStale(h.rooms.claims.Told(c.Claims, e.State)) })
	case exchange.MembersTold:
		h.noteStale(h.rooms.members.Told(e))
	case exchange.MembersEnded:
		h.noteStale(h.rooms.members.Ended(e))
	case exchange.Identified:
		h.forConn(e.Conn, func(*state.Conn) { h.noteStale(h.rooms.principals.Identified(e)) })
	case exchange.Permitted:
		h.forConn(e.Conn, func(*state.Conn) { h.noteStale(h.rooms.permissions.Answered(e)) })
	case exchange.Detached:
		h.forConn(e.Conn, func(c *state.Conn) { h.sessions.detached(c, e.Err) })
	case exchange.Yield:
		h.forConn(e.Conn, h.sessions.yield)
	case exchange.RevocationsChanged, exchange.TeamsChanged:
		h.rooms.principals.Changed(e)
	case exchange.PoliciesChanged:
		h.topics.PoliciesChanged()
		h.groups.room.PoliciesChanged()
		h.rooms.principals.NamespacesChanged()
		h.rooms.members.PoliciesChanged()
	case exchange.EventKinds:
		h.rooms.report.Want(e.Kinds)
	case exchange.Disconnect:
		h.rooms.admin.Disconnect(e)
	case exchange.SetProfile:
		h.rooms.admin.SetProfile(e)
	case exchange.Depth:
		h.forConn(e.Conn, func(c *state.Conn) { e.Reply(c.Out.Messages(), c.Out.Bytes()) })
	case exchange.Count:
		h.counts.Begin(e.Topics, nil, e.Reply)
	case exchange.Drain:
		h.rooms.departure.Drain(e)
	case exchange.Rebalance:
		h.rooms.departure.Rebalance(e)
	case exchange.WatchMembers:
		h.rooms.presence.WatchMembers(e)
	case exchange.ListMembers:
		h.rooms.presence.ListMembers(e)
	}
	return 1 + h.takeCost()
}

// forConn finds the connection of a handle that is not stale.
func (h *Hub) forConn(at exchange.Conn, f func(*state.Conn)) {
	c := h.conns.Get(at.Slot)
	if c == nil || c.Gen != at.Gen || c.Phase == state.Free || c.Phase == state.Closing {
		h.stats.StaleEvents++
		return
	}
	f(c)
}

// noteStale counts an event that found nothing of its connection that it is about.
func (h *Hub) noteStale(found bool) {
	if !found {
		h.stats.StaleEvents++
	}
}

// Work does at most about budget units of what waits in the hub's queues, a unit being a delivery
// or about as much, and reports whether anything is left.
func (h *Hub) Work(budget int) (more bool) {
	for budget > 0 {
		n := h.fan.slice(min(budget, fanSlice)) + h.replay.slice() + h.waker.Step() + h.jobs.step(h) + h.rooms.jobs.Step()
		n += h.takeCost()
		if n == 0 {
			break
		}
		budget -= n
	}
	return h.Queued()
}

// Busy reports whether Work, Dirty, Resumed or Over have something to do.
func (h *Hub) Busy() bool {
	return len(h.conns.Dirty) > 0 || len(h.conns.Resumed) > 0 || len(h.conns.Closed) > 0 || len(h.conns.Silent) > 0 || h.Queued()
}

// Queued reports whether Work has something to do.
func (h *Hub) Queued() bool {
	return h.fan.active() || h.fan.inbox.Len() > 0 || h.starter.waits() || h.replay.ready() && !h.replay.pace.Exhausted(h.now) || h.waker.Len() > 0 || h.jobs.Len()+h.rooms.jobs.Len() > 0
}

// Tick fires what is due, at most about budget connections with few topics each; more says that
// some are left. Work goes on with those that have many.
func (h *Hub) Tick(budget int) (more bool) {
	h.rooms.departure.Tick()
	h.rooms.permissions.Tick()
	return h.wheel.Advance(h.now, budget, func(slot uint32) (cost int) {
		c := h.conns.Get(slot)
		if c == nil || c.Phase == state.Free {
			return 1
		}
		return 1 + h.timers(c)/2 + h.takeCost()
	})
}

func (h *Hub) handle(c *state.Conn) exchange.Conn {
	return exchange.Conn{Loop: h.cfg.Loop, Slot: c.Slot, Gen: c.Gen}
}

// Some of what the hub does for one frame, event, timer or delivery is a walk: over a queue, a
// window, the subscriptions of a connection. Each counts (walk.Cost).

const itemsPerUnit = walk.ItemsPerUnit

// addCost notes a walk over n items.
func (h *Hub) addCost(n int) { h.cost.Add(n) }

// takeCost is what the walks since it was asked last count for, in deliveries.
func (h *Hub) takeCost() int { return h.cost.Take() }

// job is something long of the hub's own, cut into slices: step does one and reports whether it is
// done.
type job interface{ step(h *Hub) (done bool) }

// jobs of the hub take turns, a step each, as those of its rooms do (rooms.jobs).
type jobs struct{ walk.FIFO[job] }

// step has the first job do a slice, and says what that cost in deliveries; 0: there is no job.
func (q *jobs) step(h *Hub) (cost int) {
	j, ok := q.Pop()
	if !ok {
		return 0
	}
	if !j.step(h) {
		q.Push(j)
	}
	return walk.StepUnits
}
