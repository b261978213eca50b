// Package eventqueue carries events of a process to routers, which publish them: a bounded queue,
// sent in batches, one request at a time.
//
// What a router refuses for now, or does not answer, is sent again, so that an event may be
// published twice, and be behind a later one of its batch; nothing is given up before the process
// ends. What the queue has no room for is dropped, counted, and told of by an event of its own.
package eventqueue

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
	// lastTime is how long Stop goes on sending.
	lastTime = 2 * time.Second
)

// Config of a Queue.
type Config struct {
	// Source is the id of the process, and Incarnation the random number of this run of it (package
	// incarnation).
	Source      string
	Incarnation uint64
	// Request asks over NATS.
	Request func(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Subject of the router to ask; "": none is known.
	Subject func() string
	// Items and Bytes that may wait.
	Items, Bytes int
	Log          *slog.Logger
}

// Queue is a lifecycle.Part with a goroutine; Put and Lost may be called by any.
type Queue struct {
	cfg    Config
	group  *lifecycle.Group
	wake   chan struct{} // 1: there is something to send
	ending atomic.Bool   // the goroutine ends once nothing is left
	ended  chan struct{} // it has

	mu     sync.Mutex
	items  []*meshv1.EventPublish_Item
	bytes  int
	number uint64
	lost   [events.Kinds]loss
	counts map[wirev1.Code]uint64
}

// loss of one kind.
type loss struct {
	total, untold uint64
	why           wirev1.Code // of the first untold
}

// New makes a queue.
func New(cfg Config) *Queue {
	if cfg.Items == 0 {
		cfg.Items = maxItems
	}
	if cfg.Bytes == 0 {
		cfg.Bytes = maxBytes
	}
	return &Queue{cfg: cfg, wake: make(chan struct{}, 1), ended: make(chan struct{}), counts: map[wirev1.Code]uint64{}}
}

// Start begins to send.
func (q *Queue) Start(context.Context) error {
	q.group = lifecycle.NewGroup(context.Background())
	q.group.Go("events", q.run)
	return nil
}

// Put adds an event, whose time is set, to be published at topic. With a key, whoever else
// publishes an event with that key to a durable topic publishes it once.
func (q *Queue) Put(k events.Kind, topic, key string, e *pushmeshv1.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= q.cfg.Items || q.bytes >= q.cfg.Bytes {
		q.lose(k, 1, wirev1.Code_CODE_QUEUE_FULL)
	} else {
		q.add(k, topic, key, e)
	}
	q.signal()
}

// Lost tells of n events that got lost on their way to Put.
func (q *Queue) Lost(k events.Kind, n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lose(k, n, wirev1.Code_CODE_QUEUE_FULL)
	q.signal()
}

func (q *Queue) lose(k events.Kind, n uint64, why wirev1.Code) {
	l := &q.lost[k]
	if l.untold == 0 {
		l.why = why
	}
	l.total, l.untold = l.total+n, l.untold+n
	q.counts[why] += n
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) add(k events.Kind, topic, key string, e *pushmeshv1.Event) {
	q.number++
	e.Source, e.Incarnation, e.Number, e.Lost = q.cfg.Source, q.cfg.Incarnation, q.number, q.lost[k].total
	data, err := proto.Marshal(e)
	if err != nil { // a text that is not UTF-8
		q.lose(k, 1, wirev1.Code_CODE_INTERNAL)
		return
	}
	it := &meshv1.EventPublish_Item{Number: q.number, Topic: topic, Event: data, DedupeKey: key}
	q.items = append(q.items, it)
	q.bytes += size(it)
}

func size(it *meshv1.EventPublish_Item) int { return len(it.GetEvent()) + len(it.GetTopic()) + 64 }

// Waiting is how many events wait, those of a request under way not among them.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Counts of events by what became of them: OK, they were published or nobody wanted them; else they
// are lost.
func (q *Queue) Counts() map[wirev1.Code]uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[wirev1.Code]uint64{wirev1.Code_CODE_OK: 0, wirev1.Code_CODE_QUEUE_FULL: 0}
	for c, n := range q.counts {
		out[c] = n
	}
	return out
}

func (q *Queue) count(c wirev1.Code, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counts[c] += uint64(n)
}

var errNobody = errors.New("no router is reachable")

// kindOf finds the kind of an item that was refused.
func kindOf(it *meshv1.EventPublish_Item) events.Kind {
	for _, k := range events.All() {
		if events.Wanted(it.GetTopic()).Has(k) {
			return k
		}
	}
	return 0
}

// retried reports whether an event that was answered with c is sent again.
func retried(c wirev1.Code) bool {
	return code.Retryable(c) || c == wirev1.Code_CODE_OUT_OF_ORDER || c == wirev1.Code_CODE_CONFLICT || c == wirev1.Code_CODE_EPOCH_CHANGED
}
