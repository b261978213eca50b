// Package appender has durable messages appended by the stores that own their shards.
//
// There is one ordered stream to each owner. Items of one topic never overtake each other: while
// items of a shard are unanswered on one stream, no later item of the shard goes to another (lane).
// Nothing here waits for a store: what can't be appended now is refused, retryable.
package appender

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

// Owners says which store owns a shard (storeclient.Client).
type Owners interface {
	Owner(shard int) (addr string, stub meshv1.StoreServiceClient, err error)
	Changed() <-chan struct{}
	Refresh()
	// Silent says that a store has not answered anything for long: Owner names it no more.
	Silent(addr string) bool
}

// Config of an Appender; zero values are defaults.
type Config struct {
	Owners Owners
	// MaxItems and MaxBytes that may be unanswered: 131,072 and 128 MiB. Beyond: OVERLOADED.
	MaxItems, MaxBytes int
	// Timeout without any answer on a stream that owes some, after which it counts as broken: 5 s.
	Timeout time.Duration
	// MoveWait is how long items wait for the owner map to learn of a move: 500 ms.
	MoveWait time.Duration
	// MaxWait is how long items should wait for a store's answer at most: what Admits refuses keeps
	// them from waiting longer. 50 ms.
	MaxWait  time.Duration
	Registry prometheus.Registerer
}

const (
	defaultMaxItems = 128 << 10
	defaultMaxBytes = 128 << 20
	defaultTimeout  = 5 * time.Second
	defaultMoveWait = 500 * time.Millisecond
	defaultMaxWait  = 50 * time.Millisecond
	tickEvery       = 25 * time.Millisecond
	// retryAfter is what a refusal suggests.
	retryAfter = 200 * time.Millisecond
	// itemOverhead is what an item costs beside its body.
	itemOverhead = 512
)

// Sink gets the result of an item, once. unknown says that the message may be in the log although
// res.Code is not OK. It is called without locks, results of one topic one after the other in the
// order of the log, but for items that had to be sent twice; it must not block.
type Sink interface {
	Appended(res *meshv1.AppendResult, unknown bool)
}

// Item is one message to append. Req.Ref is the appender's.
type Item struct {
	Req  *meshv1.AppendItem
	Sink Sink
	// At is when its producer's call came, for how long stores take; zero: it is not counted for
	// that.
	At time.Time
	// Since is from when on the outcome of a producer's number is unknown: its item tells the store
	// for how long; zero: it has no number.
	Since time.Time

	lane    *lane
	order   uint64
	size    int
	moves   int
	retried bool
}

// mayRepeat reports whether the store recognises a second append of the item.
func (it *Item) mayRepeat() bool { return it.Req.GetDedupeKey() != "" || it.Req.GetProducerSeq() != 0 }

// isOwn says that what the store calls a duplicate is this very item, which was sent twice: message
// ids are made for each publish. Its producer published it once, and takes a number that is called
// a duplicate at the first try for one used by another message.
func (it *Item) isOwn(res *meshv1.AppendResult) bool {
	return it.retried && res.GetDuplicate() && res.GetSeq() != 0 && bytes.Equal(res.GetMessageId(), it.Req.GetMessageId())
}

// Appender is a lifecycle.Part, safe for concurrent use.
type Appender struct {
	cfg   Config
	lanes [topic.Shards]lane
	group *lifecycle.Group
	items atomic.Int64
	bytes atomic.Int64
	gate  shed.Gate

	mu      sync.Mutex
	streams map[string]*stream
	parked  map[*lane]time.Time // since when
	stopped bool
}

// New makes an appender.
func New(cfg Config) *Appender {
	if cfg.MaxItems == 0 {
		cfg.MaxItems = defaultMaxItems
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MoveWait == 0 {
		cfg.MoveWait = defaultMoveWait
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = defaultMaxWait
	}
	a := &Appender{cfg: cfg, streams: map[string]*stream{}, parked: map[*lane]time.Time{}}
	for shard := range a.lanes {
		a.lanes[shard].appender, a.lanes[shard].shard = a, shard
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_append_in_flight_messages", Help: "Messages sent to stores, or waiting to be sent, that have no answer yet.",
		}, func() float64 { return float64(a.items.Load()) }))
	}
	return a
}

// Start begins to watch streams and owners.
func (a *Appender) Start(context.Context) error {
	a.group = lifecycle.NewGroup(context.Background())
	a.group.Go("appender-watch", a.watch)
	return nil
}

// Stop waits until every item is answered, or for ctx, and ends the streams.
func (a *Appender) Stop(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for a.items.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	err := a.group.Stop(ctx)
	a.mu.Lock()
	parked := a.parked
	a.parked = map[*lane]time.Time{}
	a.mu.Unlock()
	for l := range parked {
		l.move(true)
	}
	return err
}

// InFlight is how many items are unanswered.
func (a *Appender) InFlight() int { return int(a.items.Load()) }

// Submit takes an item; its Sink gets the result. An error says that it was not taken, and the Sink
// hears nothing.
func (a *Appender) Submit(it *Item) error {
	it.size = len(it.Req.GetBody()) + itemOverhead
	items, bytes := a.items.Add(1), a.bytes.Add(int64(it.size))
	if items > int64(a.cfg.MaxItems) || bytes > int64(a.cfg.MaxBytes) {
		a.refund(it)
		return code.Retry(wirev1.Code_CODE_OVERLOADED, retryAfter, "too many messages wait for the store")
	}
	it.lane = &a.lanes[topic.Shard(it.Req.GetTopic())]
	if err := it.lane.submit(it); err != nil {
		a.refund(it)
		return err
	}
	return nil
}

func (a *Appender) refund(it *Item) {
	a.items.Add(-1)
	a.bytes.Add(-int64(it.size))
}

// done hands the result out.
func (a *Appender) done(it *Item, res *meshv1.AppendResult, unknown bool) {
	it.Sink.Appended(res, unknown)
	a.refund(it)
}

func (a *Appender) fail(it *Item, message string, unknown bool) {
	a.done(it, &meshv1.AppendResult{
		Code: wirev1.Code_CODE_UNAVAILABLE, Error: message, RetryAfterMs: uint32(retryAfter.Milliseconds()),
	}, unknown)
}

// to is the stream to addr, opened where there is none; nil once the appender stopped.
func (a *Appender) to(addr string, stub meshv1.StoreServiceClient) *stream {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.streams[addr]; s != nil {
		return s
	}
	if a.stopped {
		return nil
	}
	s := newStream(a, addr, stub)
	a.streams[addr] = s
	a.group.Go("append "+addr, s.run)
	return s
}

func (a *Appender) forget(s *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[s.addr] == s {
		delete(a.streams, s.addr)
	}
}

func (a *Appender) park(l *lane) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.parked[l]; !there {
		a.parked[l] = time.Now()
	}
}

// watch moves parked lanes when owners change, gives up on those that waited too long, and breaks
// streams that hang.
func (a *Appender) watch(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		changed := a.cfg.Owners.Changed()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
		now := time.Now()
		a.mu.Lock()
		parked := a.parked
		a.parked = map[*lane]time.Time{}
		streams := make([]*stream, 0, len(a.streams))
		for _, s := range a.streams {
			streams = append(streams, s)
		}
		a.mu.Unlock()
		for l, since := range parked {
			if !l.move(now.Sub(since) >= a.cfg.MoveWait) {
				a.mu.Lock()
				a.parked[l] = since
				a.mu.Unlock()
			}
		}
		for _, s := range streams {
			s.check(now)
		}
	}
}
