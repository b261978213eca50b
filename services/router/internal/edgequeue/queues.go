// Package edgequeue queues what the router has for each edge and sends it: numbered batches of
// deliveries, answers to announcements, and beats.
//
// Batches of one (router incarnation, edge incarnation) are numbered from 1 without gaps. A batch
// that could not be sent uses its number nevertheless, and beats name the last number: so the edge
// learns of every loss within a beat.
//
// What most edges want goes to all of them in one frame, on a subject that every edge receives.
// These broadcasts are numbered from 1 for each incarnation of the router, and every frame to a
// single edge names the last broadcast before it: so a lost broadcast is noticed like a lost batch.
package edgequeue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

// Publisher is what the queues need of NATS. Publish may block while the connection's buffer is
// full; data may be reused afterwards.
type Publisher interface {
	Publish(subject string, data []byte) error
}

// Config of the queues.
type Config struct {
	RouterID    string
	Incarnation uint64
	Bus         Publisher
	// QueueBytes that may wait for one edge; 0: 32 MiB. Beyond it deliveries are dropped, and their
	// batch's number is a gap that the edge notices.
	QueueBytes int
	// TotalBytes that may wait for all edges together; 0: 256 MiB. Beyond it deliveries are
	// dropped, too.
	TotalBytes int
	Registry   prometheus.Registerer
}

// Queues has a queue for every edge, one for all of them together, and one goroutine that sends
// batches that no caller of Uncork has sent itself. It is safe for concurrent use.
type Queues struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group
	order   sendOrder
	all     *Queue
	// sending is held by the goroutine that takes batches out of order and sends them, so that they
	// are sent in that order.
	sending    sync.Mutex
	broadcasts uint64 // number of the last broadcast; sending guards it
	ended      chan struct{}
	total      total
	gate       shed.Gate
	events     atomic.Uint32 // kinds wanted

	mu          sync.RWMutex
	queues      map[interest.Edge]*Queue
	lastNumbers map[string]lastNumber // by id
	running     bool
	leaving     bool
}

// lastNumber is the number of the last batch for an incarnation of an edge.
type lastNumber struct {
	incarnation, n uint64
}

// maxLastNumbers bounds how many edges without a queue are remembered.
const maxLastNumbers = 4096

// New makes queues without edges.
func New(cfg Config) *Queues {
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = 32 << 20
	}
	if cfg.TotalBytes == 0 {
		cfg.TotalBytes = 256 << 20
	}
	s := &Queues{
		cfg: cfg, group: lifecycle.NewGroup(context.Background()),
		order: sendOrder{wake: make(chan struct{}, 1)}, ended: make(chan struct{}),
		queues: map[interest.Edge]*Queue{}, lastNumbers: map[string]lastNumber{},
	}
	s.metrics = newMetrics(cfg.Registry, func() float64 { return float64(s.total.waiting.Load()) })
	s.total.maxBytes = int64(cfg.TotalBytes)
	s.all = s.newQueue(interest.Edge{}, bus.EveryEdgeFrames, 0)
	s.all.bytesMirror = &s.total.broadcasts
	return s
}

func (s *Queues) newQueue(e interest.Edge, subject string, n uint64) *Queue {
	return &Queue{order: &s.order, edge: e, subject: subject, maxBytes: s.cfg.QueueBytes, n: n, total: &s.total}
}

// Open makes an edge's queue and returns it; nil once the router leaves. An edge that was closed
// and opened again in the same incarnation keeps its numbers, and one number is skipped: the edge
// sees a gap, since it missed something.
func (s *Queues) Open(e interest.Edge) *Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.queues[e] != nil {
		return s.queues[e]
	}
	var n uint64
	if was := s.lastNumbers[e.ID]; was.incarnation == e.Incarnation && was.n > 0 {
		n = was.n + 1
	}
	delete(s.lastNumbers, e.ID)
	q := s.newQueue(e, bus.EdgeFrames(e.ID), n)
	s.queues[e] = q
	s.updateRoom()
	if !s.running {
		s.running = true
		s.group.Go("edge queues", s.run)
	}
	return q
}

// Close removes an edge's queue and drops what waits in it; its numbers are remembered.
func (s *Queues) Close(e interest.Edge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[e]
	if q == nil {
		return
	}
	delete(s.queues, e)
	s.updateRoom()
	q.mu.Lock()
	q.closed, q.batches, q.spare = true, nil, nil
	q.addBytes(-q.bytes)
	n := q.n
	q.mu.Unlock()
	for id := range s.lastNumbers {
		if len(s.lastNumbers) < maxLastNumbers {
			break
		}
		delete(s.lastNumbers, id)
	}
	s.lastNumbers[e.ID] = lastNumber{e.Incarnation, n}
}

// Broadcast queues a delivery for every edge, whether it wants the topic or not. It never blocks.
// It reports whether the delivery was queued; otherwise it was dropped and became a gap.
func (s *Queues) Broadcast(encoded []byte) bool { return s.all.put(encoded) }

// Cork announces that the caller is about to queue several things, one right after the other: they
// are sent together. Each call is paired with one Uncork.
func (s *Queues) Cork() { s.order.cork() }

// Uncork ends a Cork. Where few things were queued and no other goroutine sends, the caller sends
// them itself: it may wait while NATS takes no more.
func (s *Queues) Uncork() {
	if s.order.uncork() > inlineMax {
		s.order.signal()
		return
	}
	s.sendIfIdle()
}

// CloseBatches makes everything that is queued from now on be sent after what was queued before,
// also where the one is for an edge and the other for every edge. It is called when a topic changes
// between being sent to single edges and being broadcast.
func (s *Queues) CloseBatches() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.all.closeBatch()
	for _, q := range s.queues {
		q.closeBatch()
	}
}

// Beat makes every edge that got no frame lately get one. It is called every 100 ms.
func (s *Queues) Beat(now time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, q := range s.queues {
		q.mu.Lock()
		q.answerDue = q.answerDue || now.Sub(q.sentAt) >= beatEvery
		first := q.listAnswer()
		q.mu.Unlock()
		if first {
			s.order.addAnswer(q)
		}
	}
}

// SetWantedEvents tells every edge, with its next frames, which kinds of events have subscribers;
// soon, where that has changed.
func (s *Queues) SetWantedEvents(kinds events.Mask) {
	if s.events.Swap(uint32(kinds)) == uint32(kinds) {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, q := range s.queues {
		q.mu.Lock()
		q.answerDue = true
		first := q.listAnswer()
		q.mu.Unlock()
		if first {
			s.order.addAnswer(q)
		}
	}
}

// Leave sends what waits, tells every edge that this router leaves the mesh, and ends.
func (s *Queues) Leave(ctx context.Context) error {
	s.mu.Lock()
	s.leaving = true
	running := s.running
	s.mu.Unlock()
	if running {
		s.order.stopWhenFlushed()
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
	}
	return s.group.Stop(ctx)
}
