// Package switchboard connects the router with the edges over NATS: it hears what they want, and
// routes to those that want it.
package switchboard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	tickEvery     = 100 * time.Millisecond
	sweepsPerTick = 64
	// pending is how many messages of one subject may wait.
	pending = 64 << 10
)

// Bus is what a Switchboard needs of NATS: bus.Bus has it.
type Bus interface {
	edgequeue.Publisher
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
	Share(subject, group string, pending int, handle func(data []byte)) (leave func(ctx context.Context) error, err error)
	Flush(ctx context.Context) error
	Connected() bool
	Check() error
}

// Config of a Switchboard.
type Config struct {
	RouterID    string
	Incarnation uint64
	Bus         Bus
	// BroadcastFrom is how many edges must want a topic, at least, for its messages to be sent once
	// for all edges; 2 at least.
	BroadcastFrom int
	// QueueBytes that may wait for all edges together; 0: the default of package edgequeue.
	QueueBytes int
	Log        *slog.Logger
	Registry   prometheus.Registerer
	// Lost is called for an edge that is gone without announcing it, with the number of its
	// connections. It must not block.
	Lost func(e interest.Edge, connections uint32)
}

// Switchboard is a lifecycle.Part, safe for concurrent use. The bus must be started before it.
type Switchboard struct {
	cfg          Config
	edgeQueues   *edgequeue.Queues
	metrics      *metrics
	group        *lifecycle.Group
	unsubscribes []func()
	ways         *ways
	scratch      sync.Pool // of *scratch
	// unshareStored ends shareStored; the tick's own, then Stop's.
	unshareStored func(context.Context) error

	mu     sync.RWMutex // of all of the table but its lookups
	table  *interest.Table
	events []interest.Event // act's own
}

// New makes a switchboard that knows no edge.
func New(cfg Config) *Switchboard {
	s := &Switchboard{
		cfg: cfg,
		edgeQueues: edgequeue.New(edgequeue.Config{
			RouterID: cfg.RouterID, Incarnation: cfg.Incarnation, Bus: cfg.Bus, TotalBytes: cfg.QueueBytes, Registry: cfg.Registry,
		}),
		// apart from everything else: its parts begin where cache lines do
		table:   &interest.Table{},
		scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
	s.ways = newWays(cfg.BroadcastFrom, s.edgeQueues.CloseBatches)
	s.metrics = newMetrics(cfg.Registry, s)
	return s
}

// Start subscribes and begins to tick.
func (s *Switchboard) Start(context.Context) error {
	s.group = lifecycle.NewGroup(context.Background())
	for subject, hear := range map[string]func([]byte){
		bus.EdgeAnnounce:                   receiver(s, decode, s.announce),
		bus.EdgeDigest:                     receiver(s, decode, s.digest),
		bus.RouterSnapshot(s.cfg.RouterID): receiver(s, new(parts).decode, s.snapshot),
	} {
		leave, err := s.cfg.Bus.Subscribe(subject, pending, func(data []byte, respond func([]byte) error) {
			hear(data)
			_ = respond(nil) // edges wait for that between the parts of a snapshot
		})
		if err != nil {
			s.unsubscribe()
			return err
		}
		s.unsubscribes = append(s.unsubscribes, leave)
	}
	s.group.Go("switchboard-tick", s.run)
	return nil
}

// Stop tells the edges that this router leaves, and waits until NATS has everything.
func (s *Switchboard) Stop(ctx context.Context) error {
	err := s.group.Stop(ctx)
	if s.unshareStored != nil { // while the table still follows the edges
		err = errors.Join(err, s.unshareStored(ctx))
	}
	s.unsubscribe()
	err = errors.Join(err, s.edgeQueues.Leave(ctx))
	if s.cfg.Bus.Connected() {
		err = errors.Join(err, s.cfg.Bus.Flush(ctx))
	}
	return err
}

func (s *Switchboard) unsubscribe() {
	for _, leave := range s.unsubscribes {
		leave()
	}
}

// edgeMessage is any message that an edge sends to routers.
type edgeMessage interface {
	GetEdgeId() string
	GetEdgeIncarnation() uint64
}

// receiver returns a function that decodes messages of one kind and has the table take them in, one
// at a time.
func receiver[M edgeMessage](s *Switchboard, decode func(data []byte) (M, error), take func(time.Time, M)) func([]byte) {
	return func(data []byte) {
		m, err := decode(data)
		if err != nil || bus.CheckID(m.GetEdgeId()) != nil {
			s.metrics.badMessages.Inc()
			return
		}
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.table.Meet(now, m.GetEdgeId(), m.GetEdgeIncarnation())
		s.applyEvents() // an edge that joins has its queue before anyone can look it up
		take(now, m)
		s.applyEvents()
		s.announceEventKinds(now)
	}
}

func decode[M any, P interface {
	*M
	proto.Message
}](data []byte) (P, error) {
	m := P(new(M))
	return m, proto.Unmarshal(data, m)
}

func (s *Switchboard) announce(now time.Time, m *meshv1.EdgeAnnounce) { s.table.Announce(now, m) }
func (s *Switchboard) digest(now time.Time, m *meshv1.EdgeDigest)     { s.table.Digest(now, m) }
func (s *Switchboard) snapshot(now time.Time, m *meshv1.EdgeSnapshot) { s.table.Snapshot(now, m) }

func (s *Switchboard) run(ctx context.Context) {
	lifecycle.Every(ctx, tickEvery, func(now time.Time) {
		s.mu.Lock()
		s.table.Tick(now, s.cfg.Bus.Connected())
		s.applyEvents()
		s.announceEventKinds(now)
		s.mu.Unlock()
		s.edgeQueues.Beat(now)
		s.ways.tick()
		s.sweep()
		s.shareStored()
	})
}

// sweep frees the memory of edges that are gone, over a second or two.
func (s *Switchboard) sweep() {
	for range sweepsPerTick {
		s.mu.Lock()
		more := s.table.Sweep()
		s.mu.Unlock()
		if !more {
			return
		}
	}
}

// applyEvents does what the table asks for. s.mu is held.
func (s *Switchboard) applyEvents() {
	s.events = s.table.Take(s.events[:0])
	for _, ev := range s.events {
		switch ev.Kind {
		case interest.Joined:
			s.cfg.Log.Info("edge joined", "edge", ev.Peer.ID, "incarnation", ev.Peer.Incarnation)
			s.ways.edges.Add(1)
			ev.Peer.Outlet = s.edgeQueues.Open(ev.Peer.Edge)
		case interest.Left:
			s.cfg.Log.Info("edge gone", "edge", ev.Peer.ID, "incarnation", ev.Peer.Incarnation)
			s.ways.edges.Add(-1)
			s.edgeQueues.Close(ev.Peer.Edge)
			if ev.Lost && s.cfg.Lost != nil {
				s.cfg.Lost(ev.Peer.Edge, ev.Connections)
			}
		case interest.Answer:
			if ev.Want {
				s.metrics.snapshotsRequested.Inc()
			}
			queueOf(ev.Peer).Answer(ev.Applied, ev.Want)
		}
	}
}

// announceEventKinds tells edges which kinds of events have subscribers, once the table is
// complete. s.mu is held.
func (s *Switchboard) announceEventKinds(now time.Time) {
	if s.table.Ready(now) == nil {
		s.edgeQueues.SetWantedEvents(s.table.EventKinds() | events.MaskSet)
	}
}

// scratch is memory that Route reuses.
type scratch struct {
	peers   []*interest.Peer
	encoded []byte
}

// Route queues d for every edge that wants its topic now, and returns for how many. It never
// blocks. What one goroutine routes of a topic reaches each edge in that order.
func (s *Switchboard) Route(d *edgequeue.Delivery) int {
	b := s.scratch.Get().(*scratch)
	defer s.scratch.Put(b)
	b.peers = s.lookup(b.peers[:0], d.Topic)
	if len(b.peers) == 0 {
		return 0
	}
	b.encoded = edgequeue.AppendDelivery(b.encoded[:0], d)
	s.ways.put(d.Topic, len(b.peers), func(broadcast bool) {
		if broadcast {
			if s.edgeQueues.Broadcast(b.encoded) {
				s.metrics.routed.Add(float64(len(b.peers)))
			}
			return
		}
		for _, p := range b.peers {
			if queueOf(p).Deliver(b.encoded) {
				s.metrics.routed.Inc()
			}
		}
	})
	return len(b.peers)
}

// queueOf returns the queue of an edge.
func queueOf(p *interest.Peer) *edgequeue.Queue {
	q, _ := p.Outlet.(*edgequeue.Queue)
	return q
}

// Admits reports whether a message of a priority may be routed, or is to be refused because edges
// can't be reached fast enough.
func (s *Switchboard) Admits(priority uint32) (pressure float64, ok bool) {
	return s.edgeQueues.Admits(priority)
}

// Cork announces that several messages will be routed without a wait in between: they are sent
// together. Each call is paired with one Uncork.
func (s *Switchboard) Cork() { s.edgeQueues.Cork() }

// Uncork ends a Cork.
func (s *Switchboard) Uncork() { s.edgeQueues.Uncork() }

// Reachable is nil while there is a connection to NATS, over which edges are reached.
func (s *Switchboard) Reachable() error { return s.cfg.Bus.Check() }

// CheckTopic asks every edge that wants the topic to compare its head with the store.
func (s *Switchboard) CheckTopic(topic string) {
	for _, e := range s.lookup(nil, topic) {
		s.metrics.checks.Inc()
		queueOf(e).Check(topic)
	}
}

// Interested appends the edges with subscriptions that match a topic, those of groups included,
// whose messages go to another edge.
func (s *Switchboard) Interested(dst []interest.Edge, name string) []interest.Edge {
	edges := s.lookup(nil, name)
	alone := len(edges)
	edges = s.lookup(edges, topic.MembersOf(name))
	for i, p := range edges {
		if i < alone || !slices.Contains(edges[:alone], p) {
			dst = append(dst, p.Edge)
		}
	}
	return dst
}

func (s *Switchboard) lookup(dst []*interest.Peer, topic string) []*interest.Peer {
	return s.table.Lookup(dst, topic)
}

// Edges returns every live edge.
func (s *Switchboard) Edges() []interest.Edge {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Edges(nil)
}

// Check is a health check: nil while the table can be trusted.
func (s *Switchboard) Check() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Ready(time.Now())
}

func (s *Switchboard) stats() interest.Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Stats()
}

// Homes returns every live edge with the number of its connections.
func (s *Switchboard) Homes() []interest.Home {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Homes(nil)
}
