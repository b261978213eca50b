// Package outbox sends each edge what is for it: numbered batches of deliveries, answers to
// announcements, and beats.
//
// Batches of one (router incarnation, edge incarnation) are numbered from 1 without a hole. A batch
// that could not be sent uses its number nevertheless, and beats name the last number: so the edge
// learns of every loss within a beat.
//
// What most edges want goes to all of them in one frame on a subject that every edge hears. These
// broadcasts are numbered from 1 for each incarnation of the router, and every frame to a single
// edge names the last broadcast before it: so a lost one shows like a lost batch.
package outbox

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

// Publisher is what the outbox needs of NATS. Publish may block while the connection's buffer is
// full; data may be reused afterwards.
type Publisher interface {
	Publish(subject string, data []byte) error
}

// Config of an Outbox.
type Config struct {
	RouterID    string
	Incarnation uint64
	Bus         Publisher
	// QueueBytes that may wait for one edge; 0: 32 MiB. Beyond it deliveries become holes.
	QueueBytes int
	// TotalBytes that may wait for all edges together; 0: 256 MiB. Beyond it, too, deliveries
	// become holes.
	TotalBytes int
	Registry   prometheus.Registerer
}

// Outbox has a queue for every edge, one for all of them together, and one goroutine that sends
// what nobody sends who has put it. It is safe for concurrent use.
type Outbox struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group
	line    line
	all     *Queue
	// held by whoever takes batches out of the line and sends them: in that order they go on the
	// wire
	sending sync.Mutex
	casts   uint64 // number of the last broadcast; sending guards it
	ended   chan struct{}
	total   total
	gate    shed.Gate
	events  atomic.Uint32 // kinds wanted

	mu      sync.RWMutex
	queues  map[interest.Edge]*Queue
	closed  map[string]ended // by id
	running bool
	left    bool
}

// ended is where the numbers of an edge stopped.
type ended struct {
	incarnation, n uint64
}

// maxClosed bounds what is remembered of edges that are gone.
const maxClosed = 4096

// New makes an outbox without edges.
func New(cfg Config) *Outbox {
	if cfg.QueueBytes == 0 {
		cfg.QueueBytes = 32 << 20
	}
	if cfg.TotalBytes == 0 {
		cfg.TotalBytes = 256 << 20
	}
	o := &Outbox{
		cfg: cfg, group: lifecycle.NewGroup(context.Background()),
		line: line{wake: make(chan struct{}, 1)}, ended: make(chan struct{}),
		queues: map[interest.Edge]*Queue{}, closed: map[string]ended{},
	}
	o.metrics = newMetrics(cfg.Registry, func() float64 { return float64(o.total.waiting.Load()) })
	o.total.most = int64(cfg.TotalBytes)
	o.all = o.newQueue(interest.Edge{}, bus.EveryEdgeFrames, 0)
	o.all.mirror = &o.total.broadcasts
	return o
}

func (o *Outbox) newQueue(e interest.Edge, subject string, n uint64) *Queue {
	return &Queue{line: &o.line, edge: e, subject: subject, most: o.cfg.QueueBytes, n: n, total: &o.total}
}

// Open begins with an edge and returns its queue; nil once the router left. One that was closed in
// the same life goes on with its numbers, one of which is left out: it missed something.
func (o *Outbox) Open(e interest.Edge) *Queue {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left || o.queues[e] != nil {
		return o.queues[e]
	}
	var n uint64
	if was := o.closed[e.ID]; was.incarnation == e.Incarnation && was.n > 0 {
		n = was.n + 1
	}
	delete(o.closed, e.ID)
	q := o.newQueue(e, bus.EdgeFrames(e.ID), n)
	o.queues[e] = q
	o.measure()
	if !o.running {
		o.running = true
		o.group.Go("outbox", o.run)
	}
	return q
}

// Close forgets an edge and what waits for it, but not its numbers.
func (o *Outbox) Close(e interest.Edge) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queues[e]
	if q == nil {
		return
	}
	delete(o.queues, e)
	o.measure()
	q.mu.Lock()
	q.gone, q.batches, q.spare = true, nil, nil
	q.weigh(-q.bytes)
	n := q.n
	q.mu.Unlock()
	for id := range o.closed {
		if len(o.closed) < maxClosed {
			break
		}
		delete(o.closed, id)
	}
	o.closed[e.ID] = ended{e.Incarnation, n}
}

// Broadcast queues a delivery for every edge there is, whether it wants the topic or not. It never
// blocks; false where it became a hole.
func (o *Outbox) Broadcast(encoded []byte) bool { return o.all.put(encoded) }

// Cork says that the caller is about to put several things, one right after the other: they leave
// together. Each call is paired with one Uncork.
func (o *Outbox) Cork() { o.line.cork() }

// Uncork ends a Cork. Where that was little and nobody sends, the caller hands over itself what it
// has put: it may wait while NATS takes no more.
func (o *Outbox) Uncork() {
	if o.line.uncork() > passedPut {
		o.line.signal()
		return
	}
	o.pass()
}

// Seal has whatever is put from now on leave behind what was put before, also where the one is for
// an edge and the other for every edge. It is called between the two where a topic changes its way.
func (o *Outbox) Seal() {
	o.mu.RLock()
	defer o.mu.RUnlock()
	o.all.seal()
	for _, q := range o.queues {
		q.seal()
	}
}

// Beat makes every edge get a frame that has not got one lately. It is called every 100 ms.
func (o *Outbox) Beat(now time.Time) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, q := range o.queues {
		q.mu.Lock()
		q.answer = q.answer || now.Sub(q.sentAt) >= beatEvery
		first := q.ask()
		q.mu.Unlock()
		if first {
			o.line.ask(q)
		}
	}
}

// WantEvents tells every edge, with its next frames, which kinds of events somebody wants; where
// that has changed, soon.
func (o *Outbox) WantEvents(kinds events.Mask) {
	if o.events.Swap(uint32(kinds)) == uint32(kinds) {
		return
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, q := range o.queues {
		q.mu.Lock()
		q.answer = true
		first := q.ask()
		q.mu.Unlock()
		if first {
			o.line.ask(q)
		}
	}
}

// Leave sends what waits, tells every edge that this router takes no part any more, and ends.
func (o *Outbox) Leave(ctx context.Context) error {
	o.mu.Lock()
	o.left = true
	running := o.running
	o.mu.Unlock()
	if running {
		o.line.leave()
		select {
		case <-o.ended:
		case <-ctx.Done():
		}
	}
	return o.group.Stop(ctx)
}
