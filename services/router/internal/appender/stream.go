package appender

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

var errUnavailable error = code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "no connection to the store")

// Most of one AppendRequest: well below gRPC's 4 MiB.
const (
	maxRequestItems = 4096
	maxRequestBytes = 1 << 20
)

// stream is the one Append call to an owner. Two goroutines own it: run sends, receive takes
// answers.
type stream struct {
	appender *Appender
	addr     string
	stub     meshv1.StoreServiceClient
	wake     chan struct{}
	load     load

	mu     sync.Mutex
	queue  []*Item // not sent yet
	sent   map[uint64]*Item
	ref    uint64
	heard  time.Time // of the last answer, or when the first item that waits was sent
	broken bool
	meter  meter
	cancel context.CancelFunc
}

func newStream(a *Appender, addr string, stub meshv1.StoreServiceClient) *stream {
	s := &stream{appender: a, addr: addr, stub: stub, wake: make(chan struct{}, 1), sent: map[uint64]*Item{}}
	s.meter = meter{maxWait: a.cfg.MaxWait, most: a.cfg.MaxItems}
	s.load.limit.Store(int64(a.cfg.MaxItems))
	return s
}

// push queues an item; false once the stream is broken.
func (s *stream) push(it *Item) bool {
	s.mu.Lock()
	if s.broken {
		s.mu.Unlock()
		return false
	}
	s.queue = append(s.queue, it)
	s.load.waiting.Add(1)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// run opens the call and sends until it breaks.
func (s *stream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	defer s.dissolve()
	call, err := s.stub.Append(ctx)
	if err != nil {
		return
	}
	var receiver sync.WaitGroup
	defer receiver.Wait()
	defer cancel()
	receiver.Go(func() {
		defer cancel()
		s.receive(call)
	})
	req := &meshv1.AppendRequest{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		// whoever fills the queue may have more at hand: larger requests are cheaper
		runtime.Gosched()
		for s.take(req) {
			if call.Send(req) != nil {
				return
			}
		}
	}
}

// take moves queued items into req, which is reused: Send has encoded it when it returns.
func (s *stream) take(req *meshv1.AppendRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(req.Items)
	req.Items = req.Items[:0]
	bytes, n := 0, 0
	now := time.Now()
	for ; n < len(s.queue) && n < maxRequestItems && bytes < maxRequestBytes; n++ {
		it := s.queue[n]
		s.ref++
		it.Req.Ref = s.ref
		it.Req.SentMsAgo = ago(now, it.Since)
		req.Items = append(req.Items, it.Req)
		if len(s.sent) == 0 {
			s.heard = now
		}
		s.sent[s.ref] = it
		bytes += it.size
	}
	if n == len(s.queue) {
		clear(s.queue)
		s.queue = s.queue[:0]
	} else {
		s.queue = s.queue[n:]
	}
	return n > 0
}

// ago is how many milliseconds have passed since a time, by the clock that says more: one stands
// still while the machine sleeps, the other one may be set. Less than a second is not said.
func ago(now, since time.Time) uint64 {
	if since.IsZero() {
		return 0
	}
	d := max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
	if d < time.Second {
		return 0
	}
	return uint64(d.Milliseconds())
}

func (s *stream) receive(call grpc.BidiStreamingClient[meshv1.AppendRequest, meshv1.AppendResponse]) {
	var items []*Item
	for {
		resp, err := call.Recv()
		if err != nil {
			return
		}
		items = s.match(items[:0], resp.GetResults())
		for i, it := range items {
			if it != nil {
				it.lane.answered(it, resp.GetResults()[i])
			}
		}
		clear(items)
	}
}

// match finds the items that results answer; nil for an answer that nobody waits for.
func (s *stream) match(dst []*Item, results []*meshv1.AppendResult) []*Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	s.heard = time.Now()
	matched := 0
	for _, res := range results {
		it := s.sent[res.GetRef()]
		if it != nil {
			if matched == 0 {
				first = it.At
			}
			matched++
		}
		dst = append(dst, it)
		delete(s.sent, res.GetRef())
	}
	s.load.waiting.Add(-int64(matched))
	if matched > 0 {
		s.meter.took(s.heard, matched, first)
	}
	return dst
}

// check breaks the stream if it owes answers and gives none: for long, or for a while, where its
// store answers nothing else either, or its shards went to another owner. An owner that was fenced
// because it hangs would hold up its successor's items otherwise.
func (s *stream) check(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure(now)
	if len(s.sent) == 0 || s.cancel == nil {
		return
	}
	silent := now.Sub(s.heard)
	if silent > s.appender.cfg.Timeout || silent > s.appender.cfg.MoveWait && (s.appender.cfg.Owners.Silent(s.addr) || s.replaced()) {
		s.cancel()
	}
}

// replaced reports whether another store owns what this one owes an answer for. One item speaks for
// all: shards of a store that hangs are taken together. s.mu is held.
func (s *stream) replaced() bool {
	for _, it := range s.sent {
		addr, _, err := s.appender.cfg.Owners.Owner(it.lane.shard)
		return err == nil && addr != s.addr
	}
	return false
}

// dissolve gives every item without an answer back to its lane.
func (s *stream) dissolve() {
	s.mu.Lock()
	s.broken = true
	s.load.waiting.Store(0)
	queue, sent := s.queue, s.sent
	s.queue, s.sent = nil, map[uint64]*Item{}
	s.mu.Unlock()
	s.appender.forget(s)
	s.appender.cfg.Owners.Refresh()

	byLane := map[*lane][]*Item{}
	wasSent := make(map[*Item]bool, len(sent))
	for _, it := range sent {
		wasSent[it] = true
		byLane[it.lane] = append(byLane[it.lane], it)
	}
	for _, it := range queue {
		byLane[it.lane] = append(byLane[it.lane], it)
	}
	for l, items := range byLane {
		slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(a.order, b.order) })
		l.broke(items, func(it *Item) bool { return wasSent[it] })
	}
}
