package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/caller"
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
	if s.closing || s.draining {
		return nil // what is durable is not ACKed, and comes again
	}
	s.queue.Push(it)
	if !s.dispatching {
		s.dispatching = true
		go s.dispatch()
	}
	return nil
}

// crowded reports whether there is no room for an item of that size. Called with s.mu held, as is
// owed.
func (s *Subscriber) crowded(size int) bool {
	n, bytes := s.queue.Len(), s.queue.Bytes()+size
	switch {
	case n == 0 || n < s.cfg.ReceiveWindow+64 && bytes <= maxQueueBytes:
		return false
	case n < maxAside && bytes <= maxAsideBytes:
		return !s.owed()
	}
	return true
}

// crowdedCrew reports whether what waits fills the window, or, while somebody waits for what is
// behind, all the room aside.
func (s *Subscriber) crowdedCrew(w *crewOf) bool {
	n, bytes := w.Waiting()
	if s.awaited > 0 {
		return n >= maxAside || bytes >= maxAsideBytes
	}
	return n >= s.cfg.ReceiveWindow+64 || bytes >= maxQueueBytes
}

// owed reports whether somebody waits for an answer of the edge.
func (s *Subscriber) owed() bool {
	if s.awaited > 0 {
		return true
	}
	if slices.ContainsFunc(s.rooms, func(r room) bool { return r.Owes() }) {
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
	for s.queue.Len() > 0 && !s.closing {
		number, it := s.queue.Pop()
		if s.queue.Len() == s.cfg.ReceiveWindow/2 {
			s.changed.Broadcast()
		}
		s.deal(number, it)
	}
	s.dispatching = false
	s.changed.Broadcast()
}

// deal hands one item over, whose number in the queue that is. Called with s.mu held, which it lets
// go around handlers.
func (s *Subscriber) deal(number uint64, it item) {
	defer func() {
		if len(s.gaps) > 0 {
			s.unlock()
			s.mu.Lock()
		}
	}()
	if it.progress != nil {
		s.progress(it.progress, number)
		return
	}
	d := it.d
	x := handing{item: it, t: s.topic(d.Topic)}
	s.handling = d.Seq > 0
	s.involved = x.t.involved(s.involved[:0], d, number, it.link)
	byHand := -1 // who ACKs as it likes is last, so that nobody else is waited for then
	for i := range s.involved {
		if s.involved[i].sub.byHand() {
			byHand = i
			continue
		}
		s.hand(&x, i)
	}
	for i := 0; i <= byHand; i++ {
		if s.involved[i].sub.byHand() {
			x.last = i == byHand
			s.hand(&x, i)
		}
	}
	if !s.handling {
		return
	}
	s.handling = false
	switch {
	case x.f == nil:
		s.settle(x.t, d.Seq, len(d.subs) > 0, s.involved)
	case !x.left:
		s.landed(x.f)
	}
	s.resume()
}

// handing is a message that is dealt with.
type handing struct {
	item
	t    *topicState
	f    *flight // its outcome stays open; nil: it is known once it is dealt with
	last bool    // the next handler is the last one
	left bool    // f waits for handlers alone
}

// another reports whether the message is another member's of a group by now: it came over a
// connection that has ended.
func (x *handing) another(s *Subscriber, sub *Subscription) bool {
	return x.d.Seq > 0 && sub.shared() && x.link != s.link
}

// hand gives a message to one subscription's handler, unless it has had it, or has it.
func (s *Subscriber) hand(x *handing, i int) {
	d, c := x.d, s.involved[i].cursor
	sub := c.sub
	switch {
	case sub.leaving():
		return
	case x.another(s, sub):
		return
	case d.Seq > 0 && !sub.shared() && c.Done.Has(d.Seq):
		s.stats.Repeated++
		return
	case c.held[d.Seq] != nil:
		s.stats.Repeated++
		s.fly(x, c.held[d.Seq].flight())
		return
	}
	if len(s.involved) > 1 && !s.cfg.Inline {
		one := *d // which may be kept: each has its Filter, and its reply
		d = &one
	}
	r := &s.reply
	if sub.crew != nil || sub.manual {
		r = &reply{s: s, manual: sub.manual}
		if d.Seq > 0 {
			s.fly(x, nil)
			r.f = x.f
		}
	}
	r.take(d, c)
	d.Epoch, d.Filter = c.Epoch, sub.Filter()
	if r.f != nil {
		s.hold(r)
	}
	if sub.crew != nil {
		s.post(x, r)
		return
	}
	if x.last && x.f != nil {
		x.left = true
		x.f.open-- // an ACK of the handler's leaves at once
	}
	s.inside.Handlers++
	s.mu.Unlock()
	err := s.call(sub, d)
	s.mu.Lock()
	s.inside.Handlers--
	s.stats.Delivered++
	if r.f != nil { // WithManualAck
		if err != nil && !r.done {
			r.done, r.nack = true, err
			s.replied(r)
		}
		return
	}
	r.d = nil
	nack := s.judge(x.t, c, d.Seq, r.outcome(err))
	if s.involved[i].nack = nack; x.f != nil {
		x.f.of(c).nack = nack
	}
}

// call calls a subscription's handler. Called without s.mu.
func (s *Subscriber) call(sub *Subscription, d *Delivery) error {
	err := run(sub.ctx, sub.handler, d)
	if err != nil {
		s.cfg.Logger.Warn("pushmesh: a handler failed", "topic", d.Topic, "seq", d.Seq, "attempt", d.Attempt, "error", err)
	}
	return err
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

// What calls say that would wait for who calls them.
var (
	errWaitByHandler        = errors.New("pushmesh: called by a handler or a callback that has to return before what the call waits for can come: call it outside of them, or on another goroutine")
	errCloseByHandler       = errors.New("pushmesh: Close was called by a handler, for which it would have to wait: the subscriber closes when the handler has returned; call Close outside of handlers")
	errDrainByHandler       = errors.New("pushmesh: Drain was called by a handler, a callback or the body of a loop, for which it would have to wait: call it outside of them")
	errUnsubscribeByHandler = errors.New("pushmesh: Unsubscribe was called where its confirmation can't be waited for, by a handler of an Inline subscriber or a callback: nothing more of the subscription is handed over, and it ends when the edge has confirmed that")
)

// handlerOf is what handlers' contexts say their Subscription by.
type handlerOf struct{}

// nameDispatch and nameWork are the functions on whose goroutines handlers run, as stacks call
// them.
var nameDispatch, nameWork = caller.Name((*Subscriber).dispatch), caller.Name((*Subscriber).work)

// calledAt is where a call with ctx comes from, and whose handler it is, where ctx says that.
// Called with s.mu held, as is the next one.
func (s *Subscriber) calledAt(ctx context.Context) (at caller.Site, of *Subscription) {
	if s.inside.OnReader() {
		return caller.OnReader, nil
	}
	if of, _ = ctx.Value(handlerOf{}).(*Subscription); of != nil && of.s != s {
		return caller.Elsewhere, nil
	}
	return s.inside.Site(nameDispatch, nameWork), of
}

// awaiting has the connection read on, as far as there is room aside, until done is called: who
// waits for what comes over it may be whom others wait for.
func (s *Subscriber) awaiting() (done func()) {
	s.awaited++
	s.changed.Broadcast()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.awaited--
	}
}

// answerable is an error where the calling goroutine is the one that reads. It takes s.mu.
func (s *Subscriber) answerable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside.OnReader() {
		return errWaitByHandler
	}
	return nil
}

// tellProgram calls a function of the program's on the goroutine that reads. It takes s.mu.
func (s *Subscriber) tellProgram(f func()) {
	s.mu.Lock()
	s.inside.Callbacks++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inside.Callbacks--
		s.mu.Unlock()
	}()
	f()
}

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

// Size is what it has of maxQueueBytes.
func (it item) Size() int { return it.size }

// passing reports whether the item would be lost where the next connection does not bring it: a
// message of an ephemeral topic.
func (it item) passing() bool { return it.d != nil && it.d.Seq == 0 }
