package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// handlerPatience is how long a handler may have one message while the reader can't read on to an
// answer that somebody, maybe that very handler, waits for.
const handlerPatience = 5 * time.Second

// errBacklog ends a connection on which an answer lies behind more messages than are kept.
var errBacklog = errors.New("pushmesh: an answer is waited for, and more than 65,536 messages or 64 MiB before it wait for a handler that does not return")

// enqueue hands an item to the goroutine that runs handlers, which lives only while there is work.
// The reader waits while the queue is full: TCP then tells the edge. Un-ACKed messages alone never
// fill it, for the window is smaller. While somebody waits for an answer the reader reads on, as
// far as there is room aside: whoever waits may be the handler. Where that is not enough either,
// and the handler does not return, the connection is given up, which answers everybody.
func (s *Subscriber) enqueue(it item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delivered, since := s.stats.Delivered, time.Now()
	for s.crowded(it.size) && !s.closing {
		switch {
		case !s.owed() || s.stats.Delivered != delivered:
			delivered, since = s.stats.Delivered, time.Now()
		case time.Since(since) >= handlerPatience:
			return errBacklog
		}
		look := time.AfterFunc(handlerPatience, s.changed.Broadcast)
		s.changed.Wait()
		look.Stop()
	}
	if s.closing {
		return nil
	}
	s.queue.push(it)
	if !s.dispatching {
		s.dispatching = true
		go s.dispatch()
	}
	return nil
}

// crowded reports whether there is no room for an item of that size. Called with s.mu held, as is
// owed.
func (s *Subscriber) crowded(size int) bool {
	n, bytes := s.queue.len(), s.queue.bytes+size
	switch {
	case n == 0 || n < s.cfg.ReceiveWindow+64 && bytes <= maxQueueBytes:
		return false
	case n < maxAside && bytes <= maxAsideBytes:
		return !s.owed()
	}
	return true
}

// owed reports whether somebody waits for an answer of the edge.
func (s *Subscriber) owed() bool {
	if len(s.pubs)+len(s.claimAsks) > 0 {
		return true
	}
	for _, sub := range s.subs {
		if sub.sent && !sub.active || sub.unasked != nil {
			return true
		}
	}
	return false
}

// dispatch runs handlers until nothing waits.
func (s *Subscriber) dispatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue.len() > 0 && !s.closing {
		it := s.queue.pop()
		if s.queue.len() == s.cfg.ReceiveWindow/2 {
			s.changed.Broadcast()
		}
		s.deal(it)
	}
	s.dispatching = false
	s.changed.Broadcast()
}

// deal hands one item over. Called with s.mu held, which it lets go around handlers.
func (s *Subscriber) deal(it item) {
	defer func() {
		if len(s.gaps) > 0 {
			s.unlock()
			s.mu.Lock()
		}
	}()
	if it.progress != nil {
		s.progress(it.progress)
		return
	}
	d := it.d
	t := s.topic(d.Topic)
	s.handling = d.Seq > 0
	s.involved = t.involved(s.involved[:0], d)
	for _, c := range s.involved {
		c.dealt = c.Epoch
	}
	for _, c := range s.involved {
		if !c.sub.ending() {
			s.hand(t, c, d)
		}
	}
	if s.handling {
		s.handling = false
		s.settle(t, it)
		s.resume()
	}
}

// hand gives a message to one subscription's handler, unless it has had it.
func (s *Subscriber) hand(t *topicState, c *cursor, d *Delivery) {
	if d.Seq > 0 && !c.sub.shared() && c.Done.Has(d.Seq) {
		s.stats.Repeated++
		return
	}
	d.Epoch, d.Filter = c.Epoch, c.sub.Filter()
	s.running = true
	s.mu.Unlock()
	err := run(s.handlerCtx, c.sub.handler, d)
	s.mu.Lock()
	s.running = false
	s.stats.Delivered++
	if d.Seq == 0 || c.renewed() {
		return
	}
	switch {
	case c.sub.shared():
		if c.sub.request.GetAck() {
			c.nack = err
		}
		return
	case err == nil || !c.sub.request.GetAck():
		c.Succeeded(d.Seq)
		return
	}
	if given, some := c.Failed(d.Seq); some {
		s.gap(Gap{
			Filter: c.sub.Filter(), Topic: t.name, Epoch: c.Epoch, From: given.Lo, To: given.Hi,
			Missed: given.Hi - given.Lo + 1, Code: wirev1.Code_CODE_ATTEMPTS_EXHAUSTED,
		})
	}
	c.nack = err
}

// run calls a handler. A panic is the handler's error: one bad message must not end the process,
// nor be ACKed.
func run(ctx context.Context, h Handler, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return h(ctx, d)
}

// inHandler reports whether the calling goroutine is one that runs a handler, of any Subscriber.
func inHandler() bool {
	pcs := make([]uintptr, 64)
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == runName {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

// runName is the name of run in a stack.
var runName = runtime.FuncForPC(reflect.ValueOf(run).Pointer()).Name()

// maxQueueBytes bounds what waits for handlers, beside the number of messages.
const maxQueueBytes = 8 << 20

// maxAside and maxAsideBytes bound the same while somebody waits for an answer that lies behind
// what the edge sends.
const (
	maxAside      = 1 << 16
	maxAsideBytes = 64 << 20
)

// item waits for the handlers: a message, or word of seqs that will not come, in the order of
// arrival.
type item struct {
	d        *Delivery
	link     *link.Conn // that d came over
	size     int
	progress *wirev1.Progress
}

// queue is a first-in first-out of items. Guarded by Subscriber.mu.
type queue struct {
	items []item
	head  int
	bytes int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(it item) {
	q.items = append(q.items, it)
	q.bytes += it.size
}

func (q *queue) pop() item {
	it := q.items[q.head]
	q.items[q.head] = item{}
	q.head++
	q.bytes -= it.size
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 64 {
			q.items = nil // an idle subscriber owns no queue
		}
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return it
}

// dropDurable takes out what the next connection will send again. Ephemeral messages would be lost:
// they stay.
func (q *queue) dropDurable() {
	kept := make([]item, 0, q.len())
	bytes := 0
	for _, it := range q.items[q.head:] {
		if it.d != nil && it.d.Seq == 0 {
			kept = append(kept, it)
			bytes += it.size
		}
	}
	q.items, q.head, q.bytes = kept, 0, bytes
}
