package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Handler deals with one message. A nil error has it ACKed; another one Nacked, so that it comes
// again (see NackAfter). Without WithAck the error is ignored. Handlers of a Subscriber run one at
// a time, in the order of arrival; ctx ends with Close. A handler may publish, claim, subscribe and
// unsubscribe, and wait for it: answers come while it does (not with Inline), or the end of the
// connection. Meanwhile up to 65,536 messages or 64 MiB wait for it, and beyond these the
// connection is made anew.
type Handler func(ctx context.Context, d *Delivery) error

// maxPositions is how many topics a resume may name: the mesh refuses more (TOO_MANY_TOPICS).
const maxPositions = 1000

// Subscription is one filter with its handler. It outlives connections.
type Subscription struct {
	s       *Subscriber
	request *wirev1.Subscribe // as first asked for, with id
	handler Handler

	// Guarded by Subscriber.mu.
	active  bool // Subscribed has come at least once
	sent    bool // Subscribe is on the present connection
	plain   bool // it asked for what is live: its messages name no subscription
	unasked chan struct{}
	refusal error             // why the last Subscribe was refused, for now
	wait    reconnect.Backoff // after refusals, since it was subscribed last
	err     error

	ready latch // opened at the first Subscribed or at the end
	ended latch // opened at the end
}

// Filter as subscribed.
func (sub *Subscription) Filter() string { return sub.request.GetFilter() }

// shared says that its messages are those of a group, which keeps the positions: nothing is known
// here of what others have had.
func (sub *Subscription) shared() bool { return sub.request.GetGroup() != "" }

// ranked says that its messages come in the order of their scores: what is the highest seq says
// nothing about what was had.
func (sub *Subscription) ranked() bool { return sub.request.GetRankTopK() > 0 }

// Ready waits for the mesh's promise: every message whose publish begins after Ready returned nil
// is delivered. The error of a wait that ends with ctx wraps ctx's, and says what stands in the way
// where that is known.
func (sub *Subscription) Ready(ctx context.Context) error {
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

// Unsubscribe ends the subscription and waits until the edge has confirmed it.
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
	s.mu.Unlock()
	// Without a connection there is nothing to confirm: connectionLost ends the subscription.
	_ = l.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: sub.request.GetId()})
	select {
	case <-sub.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (sub *Subscription) ending() bool { return sub.ended.isOpen() }

// end closes the subscription. Called with s.mu held; may be called often.
func (sub *Subscription) end(err error) {
	if sub.ending() {
		return
	}
	sub.err = err
	if errors.Is(err, ErrClosed) && sub.active {
		sub.err = nil
	}
	sub.ended.open()
	if !sub.active {
		if sub.err == nil {
			sub.err = ErrClosed
		}
		sub.ready.open()
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
		sub.s.gap(Gap{Filter: sub.Filter(), Code: wirev1.Code_CODE_TOO_MANY_TOPICS})
		return again
	}
	again.Positions = positions
	return again
}

// refused takes an Error that names the subscription: it tries again where that can help. Called
// with s.mu held.
func (sub *Subscription) refused(e *Error) {
	sub.sent, sub.refusal = false, e
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
		}
		s.mu.Unlock()
		if again {
			_ = l.Flush() // a failed write closes the connection; the reader reports it
		}
	})
}

// apply applies options, of which one at most may say where to begin.
func (sub *Subscription) apply(opts []Option) error {
	r := sub.request
	for i, o := range opts {
		if o == nil {
			return invalid("option %d of the subscription to %.40q is nil", i+1, sub.Filter())
		}
		before, seq, epoch := r.GetStart(), r.GetSeq(), r.GetEpoch()
		o(r)
		if before != wirev1.Start_START_LIVE && (r.GetStart() != before || r.GetSeq() != seq || r.GetEpoch() != epoch) {
			return invalid("two options say where the subscription to %.40q begins: give one of FromEarliest, FromLast, FromSeq and FromSession", sub.Filter())
		}
	}
	return nil
}

// checkOptions refuses what can't work before anything is sent.
func (sub *Subscription) checkOptions() error {
	if why := topicfilter.Fault(sub.Filter()); why != "" {
		return &Error{Code: wirev1.Code_CODE_BAD_TOPIC, Message: fmt.Sprintf("filter %.40q: %s", sub.Filter(), why)}
	}
	if sub.handler == nil {
		return fmt.Errorf("pushmesh: the handler of the subscription to %.40q is nil", sub.Filter())
	}
	if sub.request.GetStart() == wirev1.Start_START_SESSION && sub.s.cfg.Session == "" {
		return errors.New("pushmesh: FromSession needs SubscriberConfig.Session, the name of the session")
	}
	if sub.request.GetGroup() == "" && sub.request.GetGroupKey() != "" {
		return errors.New("pushmesh: WithGroupKey needs WithGroup")
	}
	if sub.ranked() && (sub.request.GetGroup() != "" || sub.request.GetStart() == wirev1.Start_START_AFTER_SEQ || len(sub.request.GetPositions()) > 0) {
		return errors.New("pushmesh: WithRankTopK does not go with WithGroup, FromSeq or FromPositions: use FromSession to go on where it stood")
	}
	if len(sub.request.GetPositions()) > maxPositions {
		return &Error{Code: wirev1.Code_CODE_TOO_MANY_TOPICS, Message: fmt.Sprintf("FromPositions has %d positions, %d at most", len(sub.request.GetPositions()), maxPositions)}
	}
	return nil
}

// latch is a channel that is closed once.
type latch chan struct{}

func (l latch) isOpen() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

// open closes the channel, if it is not yet. Callers hold the lock that guards the latch.
func (l latch) open() {
	if !l.isOpen() {
		close(l)
	}
}
