package claimclient

import (
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxBatch is the most operations of one message that a store takes.
const maxBatch = 1000

// link has the operations for one store that wait to be sent, and those without an answer. Its
// goroutine opens a stream again whenever it breaks, until the store owns no shards any more.
type link struct {
	client *Client
	addr   string
	wake   chan struct{} // an operation waits, or the link must end

	mu       sync.Mutex
	ref      uint64
	waiting  []*op
	underWay map[uint64]*op // sent or waiting
	order    []uint64       // refs in the order of their ops' time; some have an answer already
	open     bool           // there is a stream
	idle     bool           // its store owns nothing
	closed   bool
}

func newLink(c *Client, addr string) *link {
	return &link{client: c, addr: addr, wake: make(chan struct{}, 1), underWay: map[uint64]*op{}}
}

// put adds an operation, and returns false if the link has ended.
func (l *link) put(o *op) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.ref++
	o.m.Ref, o.link, o.sent = l.ref, l, false
	l.idle = false
	l.underWay[l.ref] = o
	l.order = append(l.order, l.ref)
	l.waiting = append(l.waiting, o)
	awake(l.wake)
	return true
}

// batch takes the operations that wait, and marks them as sent.
func (l *link) batch() *meshv1.StoreServiceClaimsRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := &meshv1.StoreServiceClaimsRequest{}
	n := 0
	for _, o := range l.waiting {
		if len(req.GetOps()) == maxBatch {
			break
		}
		n++
		if o.ended.Load() {
			delete(l.underWay, o.m.GetRef())
			continue
		}
		o.sent = true
		req.Ops = append(req.Ops, o.m)
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return req
}

// answered removes the operation that a result belongs to; nil: no operation waits for it.
func (l *link) answered(ref uint64) *op {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.underWay[ref]
	delete(l.underWay, ref)
	return o
}

// expire ends operations that took too long.
func (l *link) expire(now time.Time) {
	l.mu.Lock()
	var late []*op
	n := 0
	for _, ref := range l.order {
		o := l.underWay[ref]
		if o != nil && !o.ended.Load() && !o.late(now) {
			break
		}
		n++
		if o != nil {
			delete(l.underWay, ref)
			late = append(late, o)
		}
	}
	l.order = append(l.order[:0], l.order[n:]...)
	l.mu.Unlock()
	for _, o := range late {
		o.finish(nil, failure(wirev1.Code_CODE_UNAVAILABLE, "the store did not answer in time"), true)
	}
}

// fail ends all operations, or only those that were sent.
func (l *link) fail(why string, all bool) {
	l.mu.Lock()
	var failed []*op
	for ref, o := range l.underWay {
		if all || o.sent {
			delete(l.underWay, ref)
			failed = append(failed, o)
		}
	}
	if all {
		l.waiting, l.order = nil, nil
	}
	l.mu.Unlock()
	for _, o := range failed {
		o.finish(nil, failure(wirev1.Code_CODE_UNAVAILABLE, why), o.sent)
	}
}

// retire ends the link once no operation is under way, unless it is used again.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = true
	awake(l.wake)
}

// closeIfIdle closes a retired link without operations, and reports whether the link is closed.
func (l *link) closeIfIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle && len(l.underWay) == 0 {
		l.closed = true
	}
	return l.closed
}

func (l *link) setOpen(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
}

func (l *link) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// close ends the link: later operations are refused.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.client.unlink(l)
	l.fail("the stream to the store has ended", true)
}
