// Package outbox sends each edge what is for it: numbered batches of deliveries, answers to announcements, and beats.
//
// Batches of one (router incarnation, edge incarnation) are numbered from 1 without a hole. A batch that could not be sent
// uses its number nevertheless, and beats name the last number: so the edge learns of every loss within a beat.
package outbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// Publisher is what the outbox needs of NATS. Publish may block while the connection's buffer is full; data may be reused afterwards.
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
	Registry   prometheus.Registerer
}

// Outbox has a queue and a goroutine for every edge. It is safe for concurrent use.
type Outbox struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group

	mu     sync.RWMutex
	queues map[interest.Edge]*queue
	closed map[string]ended // by id
	left   bool
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
	return &Outbox{
		cfg: cfg, metrics: newMetrics(cfg.Registry), group: lifecycle.NewGroup(context.Background()),
		queues: map[interest.Edge]*queue{}, closed: map[string]ended{},
	}
}

// Open begins with an edge. One that was closed in the same life goes on with its numbers, one of which is left out: it missed something.
func (o *Outbox) Open(e interest.Edge) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left || o.queues[e] != nil {
		return
	}
	var n uint64
	if was := o.closed[e.ID]; was.incarnation == e.Incarnation && was.n > 0 {
		n = was.n + 1
	}
	delete(o.closed, e.ID)
	q := newQueue(o, e, n)
	o.queues[e] = q
	o.group.Go("outbox "+e.ID, q.run)
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
	q.mu.Lock()
	q.gone, q.batches = true, nil
	n := q.n
	q.mu.Unlock()
	q.signal()
	for id := range o.closed {
		if len(o.closed) < maxClosed {
			break
		}
		delete(o.closed, id)
	}
	o.closed[e.ID] = ended{e.Incarnation, n}
}

func (o *Outbox) queue(e interest.Edge) *queue {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.queues[e]
}

// Deliver queues a delivery that AppendDelivery encoded. It never blocks; false where it became a hole.
func (o *Outbox) Deliver(e interest.Edge, encoded []byte) bool {
	q := o.queue(e)
	return q != nil && q.put(encoded)
}

// Check tells the edge to compare a topic's head with the store. Like a delivery it is part of a numbered batch.
func (o *Outbox) Check(e interest.Edge, topic string) bool {
	q := o.queue(e)
	return q != nil && q.put(appendCheck(nil, topic))
}

// Answer says to the edge, within milliseconds, which version was applied, and whether a snapshot is wanted.
func (o *Outbox) Answer(e interest.Edge, applied uint64, want bool) {
	q := o.queue(e)
	if q == nil {
		return
	}
	q.mu.Lock()
	q.applied, q.answer, q.want = applied, true, q.want || want
	q.mu.Unlock()
	q.signal()
}

// Beat makes every edge get a frame that has not got one lately. It is called every 100 ms.
func (o *Outbox) Beat(now time.Time) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, q := range o.queues {
		q.mu.Lock()
		late := now.Sub(q.sentAt) >= beatEvery
		q.answer = q.answer || late
		q.mu.Unlock()
		if late {
			q.signal()
		}
	}
}

// Leave sends what waits, tells every edge that this router takes no part any more, and ends.
func (o *Outbox) Leave(ctx context.Context) error {
	o.mu.Lock()
	o.left = true
	queues := slices.Collect(maps.Values(o.queues))
	o.mu.Unlock()
	for _, q := range queues {
		q.mu.Lock()
		q.leave = true
		q.mu.Unlock()
		q.signal()
	}
	for _, q := range queues {
		select {
		case <-q.ended:
		case <-ctx.Done():
		}
	}
	return o.group.Stop(ctx)
}
