// Package upstream is an edge's side of everything beyond its loops: it implements exchange.Mesh
// but for Ranks, Claims and Members, with NATS, the routers and the store behind it.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/feed"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/publish"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/sessions"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/turns"
)

// Store is what the mesh needs of the store: storeclient.Client has it.
type Store interface {
	history.Store
	sessions.Store
	groups.Store
	// OwnerOf is the address of the store that owns a shard, as far as is known; "" where none
	// does. It must not block.
	OwnerOf(shard int) string
}

// Config of a mesh.
type Config struct {
	ID string
	// Incarnation of this process (package incarnation).
	Incarnation uint64
	Bus         *bus.Bus
	Store       Store
	// Durable reports whether the policy of a topic makes it durable. It is called by several
	// goroutines.
	Durable func(topic string) bool
	// DurableAny reports whether a filter may match a topic that is durable. It is called by the
	// mesh's goroutine.
	DurableAny func(filter string) bool
	// MaxAttempts is how often a message of a topic is delivered to a group before it is a dead
	// letter. It is called by the groups' goroutine.
	MaxAttempts func(topic string) uint32
	// Ticket gives a router what it shows in Hello when it connects for a backend, and where it
	// connects to; nil: not now. It may be called by several goroutines at once.
	Ticket func(router string) (ticket []byte, address string)
	// TLS says that the edge shows its certificate between tiers there.
	TLS bool
	// DurableEvents are the kinds of events that are wanted whoever listens. It is called by the
	// mesh's goroutine.
	DurableEvents func() events.Mask
	// Teller has what happens on loops published; nil: nobody is told.
	Teller *audit.Teller
	// Addresses are named to clients that are sent away; nil: the public addresses of other edges.
	Addresses []string
	// Connections of the edge now.
	Connections func() int
	// About fills in what a digest says of the process; nil: nothing. It is called by the mesh's
	// goroutine.
	About  func(*meshv1.EdgeDigest)
	Log    *slog.Logger
	Tracer trace.Tracer
	// Traced says that spans go somewhere: then every message's traceparent is looked up.
	Traced bool
	// Clock says what time it is in the mesh at a time of this process's; it must not block. nil:
	// the same.
	Clock func(time.Time) time.Time
	// FramesWaiting of routers, at most, or about 64 MiB; beyond, they are dropped and heads are
	// compared. 0: 65,536.
	FramesWaiting int
	// ReadsAtATime bounds the reads of logs for subscribers that catch up, of each store; 0: 16.
	ReadsAtATime int
	// Feed bounds what the feed holds; its Loops and Durable are set by the mesh.
	Feed feed.Config
	// BackstopEvery is how often the heads of all durable topics are compared whatever happens; 0:
	// 25 s, so that none waits longer than 30 s.
	BackstopEvery time.Duration
	// FilterBudget is what all content filters of a topic may take for one message, as estimated;
	// 0: 200 µs.
	FilterBudget time.Duration
	// FilterMemory bounds the bytes of what is kept for content filters, as estimated; 0: 512 MiB.
	FilterMemory int
	// Judging bounds what waits for the verdicts of content filters.
	Judging filters.StageConfig
	// PresenceMembers bounds the members of one filter that is watched; 0: 1,000,000.
	PresenceMembers int
	// Rooms is told what routers tell of topics whose members clients watch; nil: nobody is. It
	// must not block.
	Rooms func(*meshv1.RoomFrame)
	// Groups are the bounds of shared subscriptions.
	Groups groups.Bounds
	// AddressTopics are the topics that clients of one address may make by publishing in an hour,
	// and UserTopics those of one user; 0: no bound.
	AddressTopics, UserTopics int
}

// Sizes of the mesh's queues.
const (
	framesWaiting  = 1 << 16
	readsWaiting   = 65_536
	repairsAtATime = 4 // reads of the feed's own, beside those of subscribers
)

// Mesh is a lifecycle.Part. One goroutine owns the table of interest, the routers and the feed;
// others wait for the store. Its exchange.Mesh methods may be called once SetLoops was.
type Mesh struct {
	exchange.Groups // groups, for loops

	cfg   Config
	loops outlets
	group *lifecycle.Group
	stats Stats
	ops   *serial.Queue
	inbox *bus.Inbox
	leave []func()

	judging  judging
	reads    reads
	sessions *sessions.Sessions
	publish  *publish.Publisher
	groups   *groups.Groups
	members  members
	others   *others

	// The goroutine's own.
	now       time.Time
	work      work
	heartbeat heartbeat
	decoder   decoder
	table     *interest.Table
	routers   routers
	feed      *feed.Feed
	joins     joins
	check     check
	snapshots snapshots
	events    eventKinds
	owingAt   time.Time // not before then is offered again what loops had no room for
}

// New makes a mesh.
func New(cfg Config) *Mesh {
	if cfg.ReadsAtATime == 0 {
		cfg.ReadsAtATime = 16
	}
	if cfg.BackstopEvery == 0 {
		cfg.BackstopEvery = 25 * time.Second
	}
	m := &Mesh{
		cfg: cfg, ops: serial.New(), loops: newOutlets(), table: interest.New(cfg.ID, cfg.Incarnation),
		joins: joins{heads: newHeadQuestions()}, check: newCheck(), snapshots: snapshots{},
		others: newOthers(cfg.ID, cfg.Incarnation, cfg.Addresses, cfg.Log),
	}
	m.judging = newJudging(&cfg, m.ops, &m.loops)
	m.reads = newReads(&cfg, m.ownerOf)
	m.members.ops = m.ops
	m.routers.init(cfg.Incarnation)
	return m
}

// SetLoops says who is served. It is called once, before Start and before any loop runs.
func (m *Mesh) SetLoops(loops []exchange.Loop) {
	m.cfg.Feed.Loops, m.cfg.Feed.Durable = len(loops)+1, m.cfg.Durable
	m.feed = feed.New(m.cfg.Feed)
	m.members.serve(&m.cfg, len(loops))
	for _, l := range loops {
		m.loops.add(l)
	}
	sessionOwner := func(user, name string) string { return m.cfg.Store.OwnerOf(topic.SessionShard(user, name)) }
	m.sessions = sessions.New(sessions.Config{
		Edge: m.cfg.ID, Store: m.cfg.Store, Post: m.Post, Yield: m.askToYield, Over: m.notifyTakeover, Log: m.cfg.Log,
		Owner: sessionOwner,
	})
	m.groups = groups.New(groups.Config{
		Edge: m.cfg.ID, Incarnation: m.cfg.Incarnation, Loop: uint16(len(loops)), Store: m.cfg.Store, Mesh: m, Request: m.askGroups, Owner: sessionOwner, Bounds: m.cfg.Groups,
		Durable: m.cfg.Durable, MaxAttempts: m.cfg.MaxAttempts, Traced: m.cfg.Traced, Clock: m.cfg.Clock, Log: m.cfg.Log,
	})
	m.Groups = m.groups
	m.loops.add(m.groups)
	m.publish = publish.New(publish.Config{
		Edge: m.cfg.ID, Request: m.cfg.Bus.Request, Routers: m.routers.current, Durable: m.cfg.Durable, AddressTopics: m.cfg.AddressTopics, UserTopics: m.cfg.UserTopics, Post: m.Post,
	})
}

// Live are the routers that are alive, as far as is known. Any goroutine may ask.
func (m *Mesh) Live() []routerlink.Live { return m.routers.current() }

// LiveRouters are the ids of routers that are alive, as far as is known.
func (m *Mesh) LiveRouters() (ids []string) {
	for _, r := range m.routers.current() {
		ids = append(ids, r.ID)
	}
	return ids
}

// Post hands an event that is no Live to a loop, if need be once it has room.
func (m *Mesh) Post(loop uint16, e exchange.Event) { m.loops.post(loop, e) }

// Start subscribes to what routers and others send, and begins to beat.
func (m *Mesh) Start(ctx context.Context) error {
	m.reads.start(m.cfg.ReadsAtATime)
	m.group = lifecycle.NewGroup(context.Background())
	if err := errors.Join(m.sessions.Start(ctx), m.publish.Start(ctx), m.groups.Start(ctx)); err != nil {
		return err
	}
	if m.cfg.Teller != nil {
		if err := m.cfg.Teller.Start(ctx); err != nil {
			return err
		}
	}
	var err error
	// One inbox, so that what is for this edge and what is for every edge stay in the order in
	// which a router sent it.
	if m.inbox, err = m.cfg.Bus.Listen(cmp.Or(m.cfg.FramesWaiting, framesWaiting), bus.EdgeFrames(m.cfg.ID), bus.EveryEdgeFrames); err != nil {
		return err
	}
	requests, err := m.cfg.Bus.Subscribe(bus.EdgeRequest(m.cfg.ID), 1<<12, m.request)
	if err != nil {
		return err
	}
	members, err := m.cfg.Bus.Subscribe(bus.EdgeGroups(m.cfg.ID), 1<<12, m.groups.Receive)
	if err != nil {
		return err
	}
	digests, err := m.cfg.Bus.Subscribe(bus.EdgeDigest, 1<<12, func(data []byte, _ func([]byte) error) { m.others.hear(data, time.Now()) })
	if err != nil {
		return err
	}
	m.leave = []func(){m.inbox.Leave, requests, members, digests}
	m.cfg.Bus.OnGap(func() { m.ops.Do(m.gap) })
	m.group.Go("edge-mesh", m.run)
	m.group.Go("edge-mesh-outlets", m.loops.drain)
	m.judging.start(m.group)
	return nil
}

// Stop ends the mesh: cursors that wait are written first, as far as ctx allows, and routers are
// told.
func (m *Mesh) Stop(ctx context.Context) error {
	errs := []error{m.groups.Stop(ctx), m.sessions.Stop(ctx), m.publish.Stop(ctx)}
	if m.cfg.Teller != nil { // while frames still tell of routers
		errs = append(errs, m.cfg.Teller.Stop(ctx))
	}
	m.do(ctx, func() {
		m.heartbeat.leaving = true
		m.digest()
	})
	for _, leave := range m.leave {
		leave()
	}
	errs = append(errs, m.group.Stop(ctx), m.reads.stop(ctx))
	return errors.Join(errs...)
}

// Drain tells routers that the edge is about to leave, and hands over the groups that are
// dispatched here.
func (m *Mesh) Drain(ctx context.Context) {
	m.groups.Drain(ctx)
	m.do(ctx, func() {
		m.heartbeat.draining = true
		m.digest()
	})
}

// PoliciesChanged has topics that are durable now followed. It does not wait.
func (m *Mesh) PoliciesChanged() {
	m.ops.Do(func() {
		m.checkAll("policies")
		m.durableEvents()
		m.members.reporter.Walk(topic.IsFilter) // others have presence now
	})
}

// do runs f in the mesh's goroutine and waits for it, or for ctx.
func (m *Mesh) do(ctx context.Context, f func()) {
	done := make(chan struct{})
	m.ops.Do(func() {
		f()
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
	case <-m.group.Context().Done():
	}
}

func (m *Mesh) run(ctx context.Context) {
	m.now = time.Now()
	m.durableEvents()
	m.routers.connected(m.now)
	m.check.next = m.now.Add(m.cfg.BackstopEvery)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var set time.Time // when the timer fires; zero: not any more
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-m.inbox.C():
			m.now = time.Now()
			m.receive(msg)
		case <-m.ops.Ready():
			m.now = time.Now()
			m.ops.RunFor(turns.Slice)
		case <-m.work.Ready(len(m.inbox.C())+len(m.ops.Ready()) > 0):
			m.now = time.Now()
			m.work.Run()
		case <-timer.C:
			m.now, set = time.Now(), time.Time{}
		}
		m.advance()
		// A timer that comes too early costs a turn; one set anew for every frame costs each of
		// them some.
		if next := m.next(); set.IsZero() || next.Before(set) {
			timer.Reset(max(time.Until(next), 0))
			set = next
		}
	}
}

// advance does what is due, and hands on what came out.
func (m *Mesh) advance() {
	if !m.now.Before(m.clockDue()) {
		m.heartbeat.ticked = m.now
		m.clock()
	}
	if at, ok := m.table.Due(); ok && !m.now.Before(at) {
		m.announce()
	}
	if m.heartbeat.digestDue(m.now) {
		m.digest()
	}
	if at, ok := m.joins.gate.Next(); ok && !m.now.Before(at) {
		m.passJoins()
	}
	m.feed.Advance(m.now)
	m.sweep()
	m.askHeads()
	m.runCheck()
	m.handOn()
	m.reportMembers()
}

// clock is what has to be looked at from time to time alone.
func (m *Mesh) clock() {
	m.reads.cache.Expire(m.now)
	if n := m.routers.Expire(m.now); n > 0 {
		m.cfg.Log.Warn("routers stopped answering", "routers", n)
		m.check.doubt = m.now.Add(doubtFor)
		m.checkAll(string(routerlink.Silent))
		m.routersChanged()
	}
	if m.apart() && !m.now.Before(m.check.apart) {
		m.checkAll(onlyApart)
	}
	if !m.now.Before(m.check.next) {
		m.checkAll("backstop")
	}
	m.passJoins()
	m.stats.Filters.Store(int64(m.table.Len()))
}

// clockDue is when clock has something to look at: with the next digest where nothing waits, for
// wakes are what an edge with idle connections pays for.
func (m *Mesh) clockDue() time.Time {
	due := m.heartbeat.clockDue(m.joins.waitsForRouters() || m.check.wanted() || m.check.waits() || m.routers.unheard(m.now))
	if at, ok := m.routers.NextSilent(); ok && at.Before(due) {
		due = at
	}
	if m.check.next.Before(due) {
		due = m.check.next
	}
	return due
}

// next is when advance has something to do.
func (m *Mesh) next() time.Time {
	at := m.clockDue()
	if m.heartbeat.nextDigest.Before(at) {
		at = m.heartbeat.nextDigest
	}
	for _, due := range []func() (time.Time, bool){m.table.Due, m.joins.gate.Next, m.feed.Next, m.joins.heads.due, m.owingDue, m.members.reporter.Due} {
		if t, ok := due(); ok && t.Before(at) {
			at = t
		}
	}
	return at
}

// Routers is the number of live routers, as far as is known.
func (m *Mesh) Routers() int { return len(m.routers.current()) }

var _ exchange.Mesh = struct {
	*Mesh
	exchange.Ranks
	exchange.Claims
	exchange.Members
}{}

// Publish hands a client's message to a router.
func (m *Mesh) Publish(conn exchange.Conn, origin string, id uint32, item *meshv1.ClientPublish_Item) {
	m.publish.Publish(conn, origin, id, item)
}

// Attach makes the connection the holder of a session.
func (m *Mesh) Attach(conn exchange.Conn, user, name string, ttlSeconds uint32, connectionID uint64, origin string) {
	m.sessions.Attach(conn, user, name, ttlSeconds, connectionID, origin)
}

// Save merges w into what waits to be written for its session.
func (m *Mesh) Save(conn exchange.Conn, ref uint32, w *meshv1.SessionWrite, now bool) {
	m.sessions.Save(conn, ref, w, now)
}
