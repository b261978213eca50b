package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/caller"
	"github.com/pushmesh/pushmesh/client/internal/crew"
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
)

// posted is a message that waits for a handler of a crew, which runs those of one subscription
// beside those of others, or for the application (Subscription.Messages).
type posted struct {
	r *reply
	d *Delivery
}

type (
	crewOf = crew.Crew[posted]
	postOf = crew.Post[posted]
)

// post leaves a message with a subscription's crew. Where too much waits there it waits for room,
// and with it all that comes behind. Called with s.mu held, which it may let go, as are the next
// ones.
func (s *Subscriber) post(x *handing, r *reply) {
	sub, d := r.c.sub, r.d
	w := sub.crew
	for s.crowdedCrew(w) && !s.closing && !sub.leaving() {
		s.changed.Wait()
	}
	switch {
	case s.closing || sub.leaving():
		return // nobody takes it
	case x.another(s, sub):
		s.disown(r)
		return
	}
	w.Put(d.Topic, posted{r, d}, x.size)
	if w.Working < w.Most {
		w.Working++
		s.working++
		go s.work(sub)
	}
}

// work runs handlers of a subscription until nothing waits for one.
func (s *Subscriber) work(sub *Subscription) {
	s.mu.Lock()
	defer s.unlock()
	w := sub.crew
	for !s.closing && !sub.leaving() {
		p, it := w.Next()
		if p == nil {
			break
		}
		s.inside.Handlers++
		s.mu.Unlock()
		err := s.call(sub, it.d)
		s.mu.Lock()
		s.inside.Handlers--
		s.took(it, err)
		w.Handled(p)
		if len(s.gaps)+len(s.calls) > 0 {
			s.unlock()
			s.mu.Lock()
		}
	}
	w.Working--
	s.working--
	s.changed.Broadcast()
}

// took notes what came of a message. A handler that returns settles its message, or with
// WithManualAck only by an error.
func (s *Subscriber) took(it posted, err error) {
	r := it.r
	s.stats.Delivered++
	s.changed.Broadcast()
	switch {
	case r.f == nil: // ephemeral
	case !r.manual:
		r.nack = r.outcome(err)
		r.done, r.d = true, nil
		s.replied(r)
	case err != nil && !r.done:
		r.done, r.nack = true, err
		s.replied(r)
	}
}

// Pull adds a subscription whose messages the application takes, with Messages, and waits until the
// mesh has promised to deliver; ctx bounds that wait alone. What is not taken fills the window, and
// then holds up the other subscriptions.
func (s *Subscriber) Pull(ctx context.Context, filter string, opts ...Option) (*Subscription, error) {
	sub, err := s.add(filter, nil, opts)
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx, sub); err != nil {
		return nil, err
	}
	return sub, nil
}

// Messages yields the messages of a subscription that was made with Pull, in order, and waits for
// them. The body of the loop settles a message as a handler does that returns nil: by going on, and
// by leaving the loop; Delivery.Nack and a panic ask for it again. With WithManualAck Delivery.Ack
// settles it.
//
// It ends when the subscription has ended, with the error of that if there is one, and with ctx's
// when ctx ends, whatever waits. It may be called again, and by several goroutines: each message is
// yielded once, those of one topic one after the other.
func (sub *Subscription) Messages(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		if sub.crew == nil || sub.handler != nil {
			yield(nil, misconfigured("Messages", "are of subscriptions that Pull has made: this one has a handler"))
			return
		}
		loop := caller.ID()
		for {
			p, it, err := sub.take(ctx, nil)
			if err != nil {
				yield(nil, err)
				return
			}
			if p == nil || !sub.yield(loop, p, it, yield) {
				return
			}
		}
	}
}

// take waits for the next message, as long as ctx. Without a post there is none any more: the
// subscription has ended, or enough is closed and nothing waits.
func (sub *Subscription) take(ctx context.Context, enough <-chan struct{}) (*postOf, posted, error) {
	s := sub.s
	for ctx.Err() == nil {
		s.mu.Lock()
		var p *postOf
		var it posted
		over, why := sub.ending() || s.closing, sub.err
		if !sub.ending() {
			why = s.err
		}
		if !over && !sub.leaving() {
			if p, it = sub.crew.Next(); p != nil {
				s.changed.Broadcast() // there is room
			}
		}
		more := sub.crew.More()
		s.mu.Unlock()
		switch {
		case over:
			return nil, posted{}, why
		case p != nil:
			return p, it, nil
		case isClosed(enough):
			return nil, posted{}, nil
		}
		select {
		case <-more:
		case <-enough:
		case <-sub.ended:
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
	}
	return nil, posted{}, ctx.Err()
}

// yield has the body of a loop, on that goroutine, handle a message, and settles it.
func (sub *Subscription) yield(loop uint64, p *postOf, it posted, yield func(*Delivery, error) bool) bool {
	s := sub.s
	s.mu.Lock()
	sub.bodies = append(sub.bodies, loop)
	s.mu.Unlock()
	panics := true
	defer func() {
		s.mu.Lock()
		defer s.unlock()
		at := slices.Index(sub.bodies, loop)
		sub.bodies = slices.Delete(sub.bodies, at, at+1)
		var err error
		if panics {
			err = errPanicked
		}
		s.took(it, err)
		sub.crew.Handled(p)
		s.changed.Broadcast()
	}()
	more := yield(it.d, nil)
	panics = false
	return more
}

// disband forgets what waits: the subscription has ended. What is not ACKed comes again to whoever
// goes on there. Called with s.mu held.
func (s *Subscriber) disband(w *crewOf) {
	w.Drop(func(posted) bool { return true }) // forget disowns what is held
	s.changed.Broadcast()
}

// release lets go of what waits for handlers of groups when the connection has ended: the mesh
// gives it to whoever is there.
func (s *Subscriber) release() {
	for _, sub := range s.subs {
		if sub.crew == nil || !sub.shared() {
			continue
		}
		sub.crew.Drop(func(it posted) bool {
			if it.r.f == nil {
				return false // ephemeral: it would be lost
			}
			s.disown(it.r)
			return true
		})
	}
	s.changed.Broadcast()
}

// errPanicked is why a message is asked for again.
var errPanicked = errors.New("the body of the loop panicked")

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// leaveWithin bounds the wait for the end of a subscription that has served its purpose.
const leaveWithin = 2 * time.Second

// History yields the last n messages of a topic, the oldest first, and ends with the newest that
// there is when it is asked: for a client that goes on by its session, and shows what was before.
// It needs what a subscription to the topic with FromLast needs. An ephemeral topic has none
// (UNSUPPORTED). A handler that others wait for, and a callback, can't wait for messages: in one of
// these it yields an error.
func (s *Subscriber) History(ctx context.Context, topic string, n uint64) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		if topicfilter.Wild(topic) {
			yield(nil, misconfigured("History", "is of one topic: %.40q has wildcards", topic))
			return
		}
		s.mu.Lock()
		if at, _ := s.calledAt(ctx); at == caller.InQueue || at == caller.OnReader {
			s.mu.Unlock()
			yield(nil, errWaitByHandler)
			return
		}
		done := s.awaiting() // it waits for no handler, and for nobody who takes other messages
		s.mu.Unlock()
		defer done()
		sub, err := s.Pull(ctx, topic, FromLast(n))
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			defer cancel()
			_ = sub.Unsubscribe(ctx) // what comes late is not told
		}()
		head, logged := sub.Head(topic)
		if !logged {
			yield(nil, &Error{Code: CodeUnsupported, Message: fmt.Sprintf("%.40q is ephemeral: it has no history", topic)})
			return
		}
		loop := caller.ID()
		s.mu.Lock()
		caught := sub.catching()
		s.mu.Unlock()
		for {
			p, it, err := sub.take(ctx, caught)
			switch {
			case err != nil:
				yield(nil, err)
				return
			case p == nil || it.d.Seq > head.Seq || !sub.yield(loop, p, it, yield):
				return
			}
		}
	}
}

// History yields the last n messages of the subscription's topic; see Subscriber.History. The
// subscription goes on meanwhile, and neither waits for the other.
func (sub *Subscription) History(ctx context.Context, n uint64) iter.Seq2[*Delivery, error] {
	return sub.s.History(ctx, sub.Filter(), n)
}
