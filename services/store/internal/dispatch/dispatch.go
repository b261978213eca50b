// Package dispatch appends messages that begin in the store, not at a router, and has a router
// deliver them after the commit.
package dispatch

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// Log is what messages are appended to (shardlog.Log).
type Log interface {
	Append(items []*meshv1.AppendItem, sink shardlog.Sink)
}

// Bus is what routers are reached by (bus.Bus). Publish may wait for the connection a little.
type Bus interface {
	Publish(subject string, data []byte) error
}

// Config of a Dispatcher.
type Config struct {
	Log Log
	// Bus is nil where there are no routers: then messages are appended and nobody is told.
	Bus      Bus
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Dispatcher is a lifecycle.Part, safe for concurrent use. It is to run longer than its log: what
// the log answers last is routed as well.
//
// The way of a message is "stored, now route it": it is appended like any other; once committed it
// goes over NATS to one live router (bus.Stored), with seq and body, and that router sends it to
// the interested edges exactly as it sends what it appended itself. The notice may be lost, like
// every delivery: edges compare heads (ARCHITECTURE.md, rule 2), so that it is late then and not
// lost.
type Dispatcher struct {
	cfg     Config
	metrics *metrics
	group   *lifecycle.Group
	kick    chan struct{}

	mu    sync.Mutex
	queue queue
}

// New makes a dispatcher; Append works from Start on.
func New(cfg Config) *Dispatcher {
	return &Dispatcher{cfg: cfg, metrics: newMetrics(cfg.Registry), kick: make(chan struct{}, 1)}
}

// Start begins to tell routers.
func (d *Dispatcher) Start(context.Context) error {
	d.group = lifecycle.NewGroup(context.Background())
	d.group.Go("dispatch", d.run)
	return nil
}

// Stop tells of what is left, and ends.
func (d *Dispatcher) Stop(ctx context.Context) error { return d.group.Stop(ctx) }

// Append is shardlog.Log's: each item gets exactly one result at sink. What was committed is on its
// way to the edges by then, or soon. Refs are the caller's, unique among these items.
func (d *Dispatcher) Append(items []*meshv1.AppendItem, sink shardlog.Sink) {
	c := &call{d: d, sink: sink, items: make(map[uint64]*meshv1.AppendItem, len(items))}
	for _, it := range items {
		c.items[it.GetRef()] = it
	}
	d.cfg.Log.Append(items, c)
}

// call is the sink of one Append.
type call struct {
	d     *Dispatcher
	sink  shardlog.Sink
	items map[uint64]*meshv1.AppendItem // never changed
}

// Results implements shardlog.Sink.
func (c *call) Results(rs []*meshv1.AppendResult) {
	c.d.committed(c.items, rs)
	c.sink.Results(rs)
}

func (d *Dispatcher) committed(items map[uint64]*meshv1.AppendItem, rs []*meshv1.AppendResult) {
	if d.cfg.Bus == nil {
		return
	}
	d.mu.Lock()
	for _, r := range rs {
		item := items[r.GetRef()]
		switch {
		case r.GetCode() == wirev1.Code_CODE_OK && !r.GetDuplicate():
			d.metrics.bounded(d.queue.put(item, r))
		case r.GetCode() == wirev1.Code_CODE_OK, r.GetCode() == wirev1.Code_CODE_INTERNAL:
			// The log has an earlier message under that seq, whose notice may have been lost with
			// the store that sent it; or nobody knows whether the log has this one.
			d.metrics.bounded(d.queue.check(item.GetTopic()))
		}
	}
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default: // it wakes up anyway
	}
}

// run notifies routers of queued messages until ctx ends, and then of the rest.
func (d *Dispatcher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			d.notify()
			return
		case <-d.kick:
			d.notify()
		}
	}
}

func (d *Dispatcher) notify() {
	d.mu.Lock()
	q := d.queue
	d.queue = queue{}
	d.mu.Unlock()
	q.notices(func(n notice) {
		if err := n.send(d.cfg.Bus); err != nil {
			d.cfg.Logger.Debug("sending stored messages to a router failed; edges find them later", "error", err)
			d.metrics.lost(n.messages)
			return
		}
		d.metrics.told.Add(float64(n.messages))
	})
}
