// Package forwarder sends a process's events to routers, which publish them: a bounded queue, sent
// in batches, one request at a time.
//
// What a router refuses for now, or does not answer, is sent again, so that an event may be
// published twice, and after a later event of its batch; nothing is given up before the process
// ends. What the queue has no room for is dropped, counted, and reported by an event of its own.
package forwarder

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds, where Config has none.
const (
	maxItems = 64 << 10
	maxBytes = 32 << 20

	itemsInARequest = 512
	bytesInARequest = 256 << 10
	requestTimeout  = 5 * time.Second
	firstPause      = 50 * time.Millisecond
	maxPause        = time.Second
	// drainTime is for how long Stop continues to send.
	drainTime = 2 * time.Second
)

// Config of a Forwarder.
type Config struct {
	// Source is the id of the process, and Incarnation the random number of this run of it (package
	// incarnation).
	Source      string
	Incarnation uint64
	// Request sends a NATS request and returns its reply.
	Request func(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Subject of the router to send to; "": no router is known.
	Subject func() string
	// Items and Bytes that may wait.
	Items, Bytes int
	Log          *slog.Logger
}

// Forwarder is a lifecycle.Part with a goroutine; Put and Lost may be called by any goroutine.
type Forwarder struct {
	cfg    Config
	group  *lifecycle.Group
	wake   chan struct{} // 1: there is something to send
	ending atomic.Bool   // the goroutine ends once the queue is empty
	done   chan struct{} // closed when the goroutine has ended

	mu         sync.Mutex
	items      []*meshv1.EventPublish_Item
	bytes      int
	number     uint64
	lostByKind [events.Kinds]loss
	counts     map[wirev1.Code]uint64
}

// loss counts the lost events of one kind.
type loss struct {
	total, unreported uint64
	why               wirev1.Code // of the first that is unreported
}

// New makes a Forwarder.
func New(cfg Config) *Forwarder {
	if cfg.Items == 0 {
		cfg.Items = maxItems
	}
	if cfg.Bytes == 0 {
		cfg.Bytes = maxBytes
	}
	return &Forwarder{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), counts: map[wirev1.Code]uint64{}}
}

// Start begins to send.
func (q *Forwarder) Start(context.Context) error {
	q.group = lifecycle.NewGroup(context.Background())
	q.group.Go("events", q.run)
	return nil
}

// Put queues an event, whose time is set, to be published at topic. If several processes publish an
// event with the same key to a durable topic, it is published once.
func (q *Forwarder) Put(k events.Kind, topic, key string, e *pushmeshv1.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= q.cfg.Items || q.bytes >= q.cfg.Bytes {
		q.countLost(k, 1, wirev1.Code_CODE_QUEUE_FULL)
	} else {
		q.appendEvent(k, topic, key, e)
	}
	q.signal()
}

// Lost counts n events that got lost on their way to Put; an event reports them.
func (q *Forwarder) Lost(k events.Kind, n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.countLost(k, n, wirev1.Code_CODE_QUEUE_FULL)
	q.signal()
}

func (q *Forwarder) countLost(k events.Kind, n uint64, why wirev1.Code) {
	l := &q.lostByKind[k]
	if l.unreported == 0 {
		l.why = why
	}
	l.total, l.unreported = l.total+n, l.unreported+n
	q.counts[why] += n
}

func (q *Forwarder) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Forwarder) appendEvent(k events.Kind, topic, key string, e *pushmeshv1.Event) {
	q.number++
	e.Source, e.Incarnation, e.Number, e.Lost = q.cfg.Source, q.cfg.Incarnation, q.number, q.lostByKind[k].total
	data, err := proto.Marshal(e)
	if err != nil { // a text that is not UTF-8
		q.countLost(k, 1, wirev1.Code_CODE_INTERNAL)
		return
	}
	it := &meshv1.EventPublish_Item{Number: q.number, Topic: topic, Event: data, DedupeKey: key}
	q.items = append(q.items, it)
	q.bytes += size(it)
}

func size(it *meshv1.EventPublish_Item) int { return len(it.GetEvent()) + len(it.GetTopic()) + 64 }

// Waiting returns how many events are queued, without those of a request under way.
func (q *Forwarder) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Counts returns the number of events by code: OK, they were published or nobody subscribes to
// them; any other code, they are lost.
func (q *Forwarder) Counts() map[wirev1.Code]uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[wirev1.Code]uint64{wirev1.Code_CODE_OK: 0, wirev1.Code_CODE_QUEUE_FULL: 0}
	for c, n := range q.counts {
		out[c] = n
	}
	return out
}

func (q *Forwarder) count(c wirev1.Code, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counts[c] += uint64(n)
}

var errNoRouter = errors.New("no router is reachable")

// kindOf returns the kind of an item that was refused.
func kindOf(it *meshv1.EventPublish_Item) events.Kind {
	for _, k := range events.All() {
		if events.KindsOf(it.GetTopic()).Has(k) {
			return k
		}
	}
	return 0
}

// retryable reports whether an event that was answered with c is sent again.
func retryable(c wirev1.Code) bool {
	return code.Retryable(c) || c == wirev1.Code_CODE_OUT_OF_ORDER || c == wirev1.Code_CODE_CONFLICT || c == wirev1.Code_CODE_EPOCH_CHANGED
}
