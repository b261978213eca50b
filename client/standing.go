package pushmesh

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// subscribed takes the edge's word of where the subscription stands. Called with s.mu held.
func (sub *Subscription) subscribed(m *wirev1.Subscribed) {
	resumed := sub.active
	if !wild(sub.Filter()) {
		sub.stand(sub.Filter(), m.GetEpoch(), m.GetHead(), m.GetRecovered(), m.GetMissed(), resumed)
	} else if len(m.GetPositions()) == 0 && (m.GetMissed() > 0) {
		sub.s.gap(Gap{Filter: sub.Filter(), Missed: m.GetMissed(), Code: wirev1.Code_CODE_RETENTION})
	}
	for _, p := range m.GetPositions() {
		sub.stand(p.GetTopic(), p.GetEpoch(), p.GetHead(), p.GetRecovered(), p.GetMissed(), resumed)
	}
	if !sub.active {
		sub.active = true
		close(sub.ready)
	}
}

// stand places the cursor of one topic.
func (sub *Subscription) stand(topic string, epoch, head uint64, recovered bool, missed uint64, resumed bool) {
	t := sub.s.topic(topic)
	c := t.cursor(sub)
	if c == nil || epoch == 0 || sub.shared() { // an ephemeral topic has neither epoch nor positions
		return
	}
	asked := sub.asked(resumed)
	switch {
	case c.epoch == 0 && c.high == 0:
		c.restart(epoch, sub.startSeq(topic, head))
		if sub.request.GetStart() == wirev1.Start_START_SESSION {
			c.done = c.nothing() // what the session still lacks may lie anywhere
		}
	case c.epoch != 0 && c.epoch != epoch:
		c.restart(epoch, 0)
		sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Epoch: epoch, Missed: missed, Code: wirev1.Code_CODE_EPOCH_CHANGED})
		return
	}
	c.epoch = epoch
	if sub.ranked() && resumed {
		sub.standAgain(c, topic, head)
		return
	}
	if asked && !recovered || missed > 0 {
		sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Epoch: epoch, Missed: missed, Code: wirev1.Code_CODE_RETENTION})
	}
}

// standAgain notes what a ranked subscription without a session has missed: it goes on with what is live.
func (sub *Subscription) standAgain(c *cursor, topic string, head uint64) {
	if sub.request.GetStart() == wirev1.Start_START_SESSION {
		return
	}
	if n, first := c.done.lacks(head); n > 0 {
		sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Epoch: c.epoch, From: first, To: head, Missed: n, Code: wirev1.Code_CODE_RETENTION})
	}
	c.restart(c.epoch, head)
}

// asked says whether the Subscribe just answered named a position, so that recovered=false is a loss.
func (sub *Subscription) asked(resumed bool) bool {
	start := sub.request.GetStart()
	if start == wirev1.Start_START_SESSION {
		return false // missed says it all
	}
	return resumed || start == wirev1.Start_START_AFTER_SEQ || len(sub.request.GetPositions()) > 0
}

// startSeq is the position before the first message that the first request asked for.
func (sub *Subscription) startSeq(topic string, head uint64) uint64 {
	r := sub.request
	for _, p := range r.GetPositions() {
		if p.GetTopic() == topic {
			return p.GetSeq()
		}
	}
	switch r.GetStart() {
	case wirev1.Start_START_EARLIEST, wirev1.Start_START_SESSION:
		return 0
	case wirev1.Start_START_AFTER_SEQ:
		return r.GetSeq()
	case wirev1.Start_START_LAST_N:
		return head - min(head, r.GetSeq())
	}
	return head
}
