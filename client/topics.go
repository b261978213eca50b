package pushmesh

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// maxTopics bounds how many topics a Subscriber keeps cursors of. Beyond it the cursors of some topic are forgotten,
// which a resume reports as any other position it has lost: as messages from the head on.
const maxTopics = 1 << 16

// topicState is what a Subscriber knows about one topic: a cursor for every subscription that matches. Guarded by Subscriber.mu.
type topicState struct {
	name    string
	cursors []*cursor
	plain   ackRun // ACKs of messages that named no subscription
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
	t = &topicState{name: name, plain: ackRun{topic: name}}
	for _, sub := range s.subs {
		if match(sub.Filter(), name) {
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
	delete(s.topics, victim)
}

func (t *topicState) ephemeral() bool {
	for _, c := range t.cursors {
		if c.high > 0 || c.epoch != 0 {
			return false
		}
	}
	return true
}

func (t *topicState) add(sub *Subscription) {
	t.cursors = append(t.cursors, &cursor{sub: sub, acks: ackRun{topic: t.name, sub: sub.request.GetId()}})
}

// forget takes a subscription out of everything.
func (s *Subscriber) forget(sub *Subscription) {
	delete(s.subs, sub.request.GetId())
	for name, t := range s.topics {
		for i, c := range t.cursors {
			if c.sub == sub {
				t.cursors = append(t.cursors[:i:i], t.cursors[i+1:]...)
				break
			}
		}
		if len(t.cursors) == 0 {
			delete(s.topics, name)
		}
	}
}

// wants says whether a message is for the cursor. One that names no subscription is for those that are live; a cursor
// that still reads the log up to the head it was told gets messages of its own, unless it is alone.
func (t *topicState) wants(c *cursor, subs []uint32) bool {
	if len(subs) == 0 {
		return len(t.cursors) == 1 || c.high >= c.head
	}
	for _, id := range subs {
		if id == c.sub.request.GetId() {
			return true
		}
	}
	return false
}

// progress has the cursors concerned take note of seqs that will not come.
func (s *Subscriber) progress(p *wirev1.Progress) {
	t := s.topic(p.GetTopic())
	for _, c := range t.cursors {
		if len(p.GetSubs()) > 0 && !t.wants(c, p.GetSubs()) {
			continue
		}
		restarted := c.progress(p)
		if restarted || lost(p.GetCode()) {
			s.gap(Gap{
				Filter: c.sub.Filter(), Topic: p.GetTopic(), Epoch: c.epoch, From: p.GetFrom(), To: p.GetTo(),
				Missed: missed(p), Code: p.GetCode(),
			})
		}
	}
}

// lost says whether a reason means that a message was not delivered though it was wanted.
func lost(c Code) bool {
	switch c {
	case wirev1.Code_CODE_OK, wirev1.Code_CODE_FILTERED, wirev1.Code_CODE_NOT_YOURS, wirev1.Code_CODE_CONFLATED,
		wirev1.Code_CODE_RANKED_OUT, wirev1.Code_CODE_EXPIRED:
		return false
	}
	return true
}

func missed(p *wirev1.Progress) uint64 {
	if p.GetTo() == 0 || p.GetTo() < p.GetFrom() {
		return 0
	}
	return p.GetTo() - max(p.GetFrom(), 1) + 1
}
