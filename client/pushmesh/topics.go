package pushmesh

import (
	"slices"

	"github.com/pushmesh/pushmesh/client/internal/acks"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/position"
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxTopics bounds how many topics a Subscriber keeps cursors of. Beyond it the cursors of some
// topic are forgotten, which a resume reports as any other position it has lost: as messages from
// the head on.
const maxTopics = 1 << 16

// topicState is what a Subscriber knows about one topic: a cursor for every subscription that
// matches. Guarded by Subscriber.mu.
type topicState struct {
	name    string
	cursors []*cursor
	plain   acks.Run // ACKs of messages that named no subscription
}

// cursor is how far one subscription has come in one log of a topic. A log that begins anew has
// another cursor: what was handed over before ends where it began, and counts for nothing there.
// Guarded by Subscriber.mu.
type cursor struct {
	position.Cursor
	sub  *Subscription
	acks acks.Run
	// held are messages whose outcome is open, by seq; nil: there was none yet.
	held map[uint64]*reply
	// head of the log when the edge last said where the subscription stands; behind says that it
	// was not reached yet.
	head   uint64
	behind bool
	// gone says that the log is: another one took its place.
	gone bool
	// before is of the log whose place this one took, for what was queued before number since; nil:
	// nothing is any more.
	before *cursor
	since  uint64
	past   []*cursor // of logs before, of which something is held
}

// at is the cursor of the log that the item of a number in the queue is of.
func (c *cursor) at(number uint64) *cursor {
	for c.before != nil {
		if number >= c.since {
			c.before = nil
			break
		}
		c = c.before
	}
	return c
}

func (t *topicState) cursor(sub *Subscription) *cursor {
	for _, c := range t.cursors {
		if c.sub == sub {
			return c
		}
	}
	return nil
}

// topic finds or makes the state of one topic.
func (s *Subscriber) topic(name string) *topicState {
	t := s.topics[name]
	if t != nil {
		return t
	}
	t = &topicState{name: name, plain: acks.Run{Topic: name}}
	for _, sub := range s.subs {
		if topicfilter.Match(sub.Filter(), name) {
			t.add(sub)
		}
	}
	if len(t.cursors) == 0 {
		return t // of a subscription that has ended meanwhile
	}
	if len(s.topics) >= maxTopics {
		s.evict()
	}
	s.topics[name] = t
	return t
}

// evict forgets one topic, an ephemeral one if there is one among a few.
func (s *Subscriber) evict() {
	victim, tries := "", 0
	for name, t := range s.topics {
		victim = name
		if tries++; tries > 32 || t.ephemeral() {
			break
		}
	}
	for _, c := range s.topics[victim].cursors {
		c.sub.behindBy(c, false)
	}
	delete(s.topics, victim)
}

func (t *topicState) ephemeral() bool {
	for _, c := range t.cursors {
		if c.High > 0 || c.Epoch != 0 {
			return false
		}
	}
	return true
}

func (t *topicState) add(sub *Subscription) { t.cursors = append(t.cursors, t.newCursor(sub)) }

func (t *topicState) newCursor(sub *Subscription) *cursor {
	return &cursor{
		Cursor: position.NewCursor(sub.ranked()), sub: sub, acks: acks.Run{Topic: t.name, Sub: sub.request.GetId()},
	}
}

// renew has a cursor of another log take the place of c. What was queued before number since is of
// the log before.
func (t *topicState) renew(c *cursor, since uint64) *cursor {
	n := t.newCursor(c.sub)
	n.before, n.since = c, since
	n.past = slices.DeleteFunc(append(c.past, c), func(c *cursor) bool { return len(c.held) == 0 })
	c.gone, c.past = true, nil
	c.sub.behindBy(c, false)
	t.cursors[slices.Index(t.cursors, c)] = n
	return n
}

// forget takes a subscription out of everything.
func (s *Subscriber) forget(sub *Subscription) {
	delete(s.subs, sub.request.GetId())
	for name, t := range s.topics {
		for i, c := range t.cursors {
			if c.sub == sub {
				t.cursors = append(t.cursors[:i:i], t.cursors[i+1:]...)
				s.disownAll(c)
				break
			}
		}
		if len(t.cursors) == 0 {
			delete(s.topics, name)
		}
	}
}

// disownAll lets go what is held of a cursor, and of those whose place it took.
func (s *Subscriber) disownAll(c *cursor) {
	for _, c := range append(c.past, c) {
		for _, r := range c.held {
			s.disown(r)
		}
	}
}

// involved appends the cursors that a message is for, whose number in the queue that is, and which
// came over l.
func (t *topicState) involved(out []holder, d *Delivery, number uint64, l *link.Conn) []holder {
	plain := t.anyPlain()
	for _, c := range t.cursors {
		if c = c.at(number); t.wants(c, d, plain) {
			out = append(out, holder{cursor: c, link: l})
		}
	}
	return out
}

func (t *topicState) anyPlain() bool {
	return slices.ContainsFunc(t.cursors, func(c *cursor) bool { return c.sub.plain })
}

// wants reports whether a message is for the cursor. One that names no subscription is for the
// plain ones. Another one gets messages of its own; it takes a plain one only where that comes
// next, so that it misses nothing where an edge counts it as plain once it has caught up.
func (t *topicState) wants(c *cursor, d *Delivery, plain bool) bool {
	if len(d.subs) > 0 {
		return slices.Contains(d.subs, c.sub.request.GetId())
	}
	if c.sub.request.GetWhere() != "" || c.sub.request.GetNoEcho() || c.sub.ranked() {
		return false // messages for it name it
	}
	return c.sub.plain || !plain || d.Seq > 0 && d.Seq == c.High+1
}

// plainSub names a plain subscription where the topic has others too: ACKs without a name would
// count for these.
func (t *topicState) plainSub() uint32 {
	id, others := uint32(0), false
	for _, c := range t.cursors {
		if !c.sub.plain {
			others = true
		} else if id == 0 || c.sub.request.GetAck() {
			id = c.sub.request.GetId()
		}
	}
	if others {
		return id
	}
	return 0
}

// progress has the cursors concerned take note of seqs that will not come.
func (s *Subscriber) progress(p *wirev1.Progress, number uint64) {
	t := s.topic(p.GetTopic())
	plain := t.anyPlain()
	for _, c := range t.cursors {
		c = c.at(number)
		// What doesn't come to the plain subscriptions may come to others.
		if named := len(p.GetSubs()) > 0; named && !slices.Contains(p.GetSubs(), c.sub.request.GetId()) || !named && plain && !c.sub.plain {
			continue
		}
		if e := p.GetEpoch(); e != 0 && e < c.Epoch {
			continue // late word of a log that is gone
		}
		restarted := !c.gone && (c.Renewed(p) || len(c.held) > 0 && c.Epoch == 0 && p.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED)
		if restarted {
			c = t.renew(c, number)
			c.Restart(p.GetEpoch(), 0)
		} else {
			c.Progress(p)
		}
		if restarted || position.Lost(p.GetCode()) {
			s.gap(Gap{
				Filter: c.sub.Filter(), Topic: p.GetTopic(), Epoch: c.Epoch, From: p.GetFrom(), To: p.GetTo(),
				Missed: position.Missed(p), Code: Code(p.GetCode()),
			})
		}
		c.sub.advanced(c)
	}
}
