package pushmesh

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Handler deals with one message. A nil error has it ACKed; another one Nacked, so that it comes
// again (see NackAfter). Without WithAck the error is ignored. Handlers of a Subscriber run one at
// a time, in the order of arrival; ctx ends with Close. A handler may publish, claim, subscribe and
// unsubscribe, and wait for it: answers come while it does, or the end of the connection. Meanwhile
// up to 65,536 messages or 64 MiB wait for it, and beyond these the connection is made anew. What
// can't come before the handler has returned is not waited for: such a call (History and CaughtUp,
// Drain and Close; with Inline all that wait for the mesh) returns an error at once. A handler
// hands on its ctx to calls, which says whose handler calls.
type Handler func(ctx context.Context, d *Delivery) error

// maxPositions is how many topics a resume may name: the mesh refuses more (TOO_MANY_TOPICS).
const maxPositions = 1000

// Subscription is one filter with its handler. It outlives connections.
type Subscription struct {
	s       *Subscriber
	request *wirev1.Subscribe // as first asked for, with id
	handler Handler           // nil: the application takes messages
	crew    *crewOf           // nil: handlers run on the Subscriber's goroutine
	manual  bool              // WithManualAck
	ctx     context.Context   // of handlers

	// Guarded by Subscriber.mu.
	active  bool // Subscribed has come at least once
	sent    bool // Subscribe is on the present connection
	plain   bool // it asked for what is live: its messages name no subscription
	unasked chan struct{}
	// Of the last Subscribed: whether it went on exactly where it was asked to, and in how many
	// topics messages are missing yet up to the head.
	recovered bool
	behind    int
	caught    chan struct{}     // who waits for the head; nil: nobody does
	refusal   error             // why the last Subscribe was refused, for now
	wait      reconnect.Backoff // after refusals, since it was subscribed last
	bodies    []uint64          // goroutines of loops in whose bodies a message is
	cut       bool              // the connection took the answer to its Unsubscribe
	err       error

	ready ext.Latch // opened at the first Subscribed or at the end
	ended ext.Latch // opened at the end
}

// Filter as subscribed.
func (sub *Subscription) Filter() string { return sub.request.GetFilter() }

// shared says that its messages are those of a group, which keeps the positions: nothing is known
// here of what others have had.
func (sub *Subscription) shared() bool { return sub.request.GetGroup() != "" }

// ranked says that its messages come in the order of their scores: what is the highest seq says
// nothing about what was had.
func (sub *Subscription) ranked() bool { return sub.request.GetRankTopK() > 0 }

// byHand says that its handler runs on the Subscriber's goroutine, and ACKs what it likes when it
// likes.
func (sub *Subscription) byHand() bool { return sub.manual && sub.crew == nil }

// Ready waits for the mesh's promise: every message whose publish begins after Ready returned nil
// is delivered. The error of a wait that ends with ctx wraps ctx's, and says what stands in the way
// where that is known.
func (sub *Subscription) Ready(ctx context.Context) error {
	if !sub.ready.IsOpen() {
		if err := sub.s.answerable(); err != nil {
			return err
		}
	}
	select {
	case <-sub.ready:
	case <-ctx.Done():
		sub.s.mu.Lock()
		defer sub.s.mu.Unlock()
		why := sub.s.fault()
		if why == nil {
			why = sub.refusal
		}
		return waited(ctx, "not subscribed", why)
	}
	return sub.Err()
}

// Done is closed once no more messages will come: unsubscribed, refused for good, or the Subscriber
// has ended.
func (sub *Subscription) Done() <-chan struct{} { return sub.ended }

// Err says why the subscription ended; nil while it goes on and after Unsubscribe.
func (sub *Subscription) Err() error {
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	return sub.err
}

// Positions of the topics seen so far, good for FromPositions. A group's members and ranked
// subscriptions have none.
func (sub *Subscription) Positions() []Position {
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	var out []Position
	for _, p := range sub.positions() {
		out = append(out, Position{Topic: p.GetTopic(), Epoch: p.GetEpoch(), Seq: p.GetSeq()})
	}
	return out
}

// Unsubscribe ends the subscription and waits until the edge has confirmed it. From the call on
// nothing more of it is handed over. The end of the connection is the end of the subscription, too,
// but a session may still have the filter then: the *Error says Unknown. Where the confirmation
// can't be waited for, in a callback or a handler of an Inline subscriber, it returns an error at
// once, and the subscription ends when the edge has confirmed it.
func (sub *Subscription) Unsubscribe(ctx context.Context) error {
	s := sub.s
	s.mu.Lock()
	l := s.link
	if sub.ending() || l == nil || !sub.sent {
		sub.end(nil)
		s.mu.Unlock()
		return nil
	}
	if sub.unasked == nil {
		sub.unasked = make(chan struct{})
	}
	s.changed.Broadcast() // the reader reads on for the answer
	s.flushAcks()         // behind Unsubscribe nobody would know whose they are
	// Without a connection there is nothing to confirm: disconnected ends the subscription.
	_ = l.Put(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: sub.request.GetId()})
	if s.inside.OnReader() {
		s.flushIn(0)
		s.mu.Unlock()
		return errUnsubscribeByHandler
	}
	s.mu.Unlock()
	_ = l.Flush() // a failed write closes the connection; the reader reports it
	select {
	case <-sub.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.cut && sub.request.GetStart() == wirev1.Start_START_SESSION {
		return &Error{Code: CodeUnavailable, Message: "the connection ended before the answer: the session may still have the filter", Unknown: true}
	}
	return nil
}

// cutOff ends a subscription whose Unsubscribe is not answered any more. Called with s.mu held.
func (sub *Subscription) cutOff() {
	sub.cut = true
	sub.end(nil)
}

func (sub *Subscription) ending() bool { return sub.ended.IsOpen() }

// leaving reports whether nothing more is handed over. Called with s.mu held.
func (sub *Subscription) leaving() bool { return sub.unasked != nil || sub.ending() }

// end closes the subscription. Called with s.mu held; may be called often.
func (sub *Subscription) end(err error) {
	if sub.ending() {
		return
	}
	sub.err = err
	if errors.Is(err, ErrClosed) && sub.active {
		sub.err = nil
	}
	sub.ended.Open()
	if sub.crew != nil {
		sub.s.disband(sub.crew)
	}
	if !sub.active {
		if sub.err == nil {
			sub.err = ErrClosed
		}
		sub.ready.Open()
	}
	sub.s.forget(sub)
}

// positions of all cursors with something to say. Called with s.mu held.
func (sub *Subscription) positions() []*wirev1.Position {
	var out []*wirev1.Position
	for name, t := range sub.s.topics {
		for _, c := range t.cursors {
			if c.sub == sub && !sub.shared() && !sub.ranked() && (c.Epoch != 0 || c.High > 0 || c.Void) {
				out = append(out, &wirev1.Position{Topic: name, Epoch: c.Epoch, Seq: c.Position()})
			}
		}
	}
	return out
}

// frame to send on a new connection: the first request, or one that resumes. Called with s.mu held.
func (sub *Subscription) frame() *wirev1.Subscribe {
	if !sub.active || sub.shared() || sub.request.GetStart() == wirev1.Start_START_SESSION {
		return sub.request
	}
	positions := sub.positions()
	if len(positions) == 0 && !sub.ranked() {
		return sub.request
	}
	again := proto.CloneOf(sub.request)
	again.Start, again.Seq, again.Epoch, again.Positions = wirev1.Start_START_LIVE, 0, 0, nil
	if len(positions) > maxPositions {
		sub.s.gap(Gap{Filter: sub.Filter(), Code: CodeTooManyTopics})
		return again
	}
	again.Positions = positions
	return again
}

// refused takes an Error that names the subscription: it tries again where that can help. Called
// with s.mu held.
func (sub *Subscription) refused(e *Error) {
	sub.sent, sub.refusal = false, e
	sub.s.cfg.Logger.Warn("pushmesh: subscription refused", "filter", sub.Filter(), "error", e)
	switch {
	case sub.unasked != nil:
		sub.end(nil) // it is not to come back
		return
	case !e.Retryable():
		sub.end(e)
		return
	}
	s, l := sub.s, sub.s.link
	time.AfterFunc(sub.wait.Next(e.RetryAfter), func() {
		s.mu.Lock()
		again := s.link == l && l != nil && !sub.ending() && !sub.sent
		if again {
			s.sendSubscribe(l, sub)
			s.changed.Broadcast() // the reader reads on for the answer
		}
		s.mu.Unlock()
		if again {
			_ = l.Flush() // a failed write closes the connection; the reader reports it
		}
	})
}
