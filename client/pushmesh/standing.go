package pushmesh

import (
	"context"
	"slices"

	"github.com/pushmesh/pushmesh/client/internal/begin"
	"github.com/pushmesh/pushmesh/client/internal/caller"
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// subscribed takes the edge's word of where the subscription stands. Called with s.mu held.
func (sub *Subscription) subscribed(m *wirev1.Subscribed) {
	resumed := sub.active
	sub.recovered = true
	sub.wait.Reset()
	if !topicfilter.Wild(sub.Filter()) {
		sub.stand(sub.Filter(), m.GetEpoch(), m.GetHead(), m.GetRecovered(), m.GetMissed(), resumed)
	} else if len(m.GetPositions()) == 0 && (m.GetMissed() > 0) {
		sub.s.gap(Gap{Filter: sub.Filter(), Missed: m.GetMissed(), Code: CodeRetention})
	}
	for _, p := range m.GetPositions() {
		sub.stand(p.GetTopic(), p.GetEpoch(), p.GetHead(), p.GetRecovered(), p.GetMissed(), resumed)
	}
	if m.GetMissed() > 0 {
		sub.recovered = false
	}
	if !sub.active {
		sub.active = true
		sub.ready.Open()
	}
}

// stand places the cursor of one topic.
func (sub *Subscription) stand(topic string, epoch, head uint64, recovered bool, missed uint64, resumed bool) {
	defer sub.mark(topic, epoch, head)
	if missed > 0 || begin.Asked(sub.request, resumed) && !recovered {
		sub.recovered = false
	}
	t := sub.s.topic(topic)
	c := t.cursor(sub)
	lost := begin.Asked(sub.request, resumed) && !recovered
	why := CodeRetention
	if epoch == 0 && !resumed {
		why = CodeUnsupported
	}
	if c == nil || sub.shared() || epoch == 0 && !lost {
		// an ephemeral topic has neither epoch nor positions
		if c != nil && why == CodeUnsupported && begin.WantsLog(sub.request) {
			sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Code: why})
		}
		if c != nil && sub.shared() && epoch != 0 {
			if c.Epoch != 0 && c.Epoch != epoch {
				c = sub.startOver(t, c, epoch, Gap{Topic: topic, Code: CodeEpochChanged})
			}
			c.Epoch = epoch
		}
		return
	}
	if epoch == 0 && resumed && c.Epoch == 0 && c.High == 0 {
		return // nothing was had of it, and it was told that there is no log
	}
	if c.Epoch == 0 && c.High == 0 {
		c.Restart(begin.At(sub.request, topic, head))
		if sub.request.GetStart() == wirev1.Start_START_SESSION {
			c.ForgetDone() // what the session still lacks may lie anywhere
		}
	}
	switch {
	case epoch != 0 && c.Epoch != 0 && c.Epoch != epoch:
		sub.startOver(t, c, epoch, Gap{Topic: topic, Missed: missed, Code: CodeEpochChanged})
		return
	case lost && c.High > head:
		// The log has not come as far as the position: what it has, and will have, under these
		// numbers is not what was had.
		sub.startOver(t, c, epoch, Gap{Topic: topic, Missed: missed, Code: why})
		return
	}
	c.Epoch = epoch
	if sub.ranked() && resumed {
		sub.standAgain(c, topic, head)
		return
	}
	if lost || missed > 0 {
		sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Epoch: epoch, Missed: missed, Code: why})
	}
}

// mark notes where the log of a topic stands.
func (sub *Subscription) mark(topic string, epoch, head uint64) {
	if c := sub.s.topic(topic).cursor(sub); c != nil && epoch != 0 {
		c.head = head
		sub.behindBy(c, !sub.shared() && c.Position() < head)
	}
}

// advanced looks whether a cursor has come to the head.
func (sub *Subscription) advanced(c *cursor) {
	if c.behind && c.Position() >= c.head {
		sub.behindBy(c, false)
	}
}

// behindBy notes whether messages are missing up to a cursor's head.
func (sub *Subscription) behindBy(c *cursor, yes bool) {
	if c.behind == yes {
		return
	}
	if c.behind = yes; yes {
		sub.behind++
		return
	}
	if sub.behind--; sub.behind == 0 && sub.caught != nil {
		close(sub.caught)
		sub.caught = nil
	}
}

// catching is closed once no message is missing up to the heads. Called with s.mu held.
func (sub *Subscription) catching() <-chan struct{} {
	if sub.behind == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if sub.caught == nil {
		sub.caught = make(chan struct{})
	}
	return sub.caught
}

// looping reports whether the call comes from the body of a loop over the subscription's messages.
// Called with s.mu held.
func (sub *Subscription) looping() bool {
	return len(sub.bodies) > 0 && slices.Contains(sub.bodies, caller.ID())
}

// Recovered reports whether the subscription went on exactly where it was to, when the mesh said so
// last: nothing was missing. What was is told by OnGap, too.
func (sub *Subscription) Recovered() bool {
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	return sub.recovered
}

// Head is where the log of a topic stood when the mesh promised to deliver, last: a Delivery whose
// Seq is above it was published since. False where it is not known: an ephemeral topic, or one that
// the subscription knows nothing of yet.
func (sub *Subscription) Head(topic string) (Position, bool) {
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	if t := sub.s.topics[topic]; t != nil {
		if c := t.cursor(sub); c != nil && c.Epoch != 0 {
			return Position{Topic: topic, Epoch: c.Epoch, Seq: c.head}, true
		}
	}
	return Position{}, false
}

// CaughtUp waits until every message up to the heads (Head) was handled, or won't come: what comes
// from then on is live. A handler, and the body of a loop, whose own message may be among these,
// can't wait for it: called there, it is an error, unless there is nothing to wait for. How far a
// session, a group or a ranking has come is not known here (UNSUPPORTED).
func (sub *Subscription) CaughtUp(ctx context.Context) error {
	if sub.shared() || sub.ranked() || sub.request.GetStart() == wirev1.Start_START_SESSION {
		return &Error{Code: CodeUnsupported, Message: "where a session, a group or a ranking stands is not known to its subscriptions"}
	}
	if err := sub.Ready(ctx); err != nil {
		return err
	}
	s := sub.s
	s.mu.Lock()
	caught, done := sub.catching(), func() {}
	if !isClosed(caught) {
		switch at, of := s.calledAt(ctx); {
		case at >= caller.InQueue, at == caller.InCrew && (of == sub || of == nil && sub.crew != nil), sub.looping():
			s.mu.Unlock()
			return errWaitByHandler
		case at == caller.InCrew:
			done = s.awaiting()
		}
	}
	s.mu.Unlock()
	defer done()
	select {
	case <-caught:
		return nil
	case <-sub.ended:
		if err := sub.Err(); err != nil {
			return err
		}
		return ErrClosed
	case <-ctx.Done():
		return waited(ctx, "not caught up", sub.s.faultOf())
	}
}

// startOver gives up what was known of a topic, whose positions are void. What is queued is of the
// log before.
func (sub *Subscription) startOver(t *topicState, c *cursor, epoch uint64, why Gap) *cursor {
	c = t.renew(c, sub.s.queue.Pushed())
	c.Restart(epoch, 0)
	c.Void = true
	why.Filter, why.Epoch = sub.Filter(), epoch
	sub.s.gap(why)
	return c
}

// standAgain notes what a ranked subscription without a session has missed: it goes on with what is
// live.
func (sub *Subscription) standAgain(c *cursor, topic string, head uint64) {
	if sub.request.GetStart() == wirev1.Start_START_SESSION {
		return
	}
	if n, first := c.Done.Lacks(head); n > 0 {
		sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Epoch: c.Epoch, From: first, To: head, Missed: n, Code: CodeRetention})
	}
	c.Restart(c.Epoch, head)
}
