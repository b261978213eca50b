package pushmesh

import (
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// subscribed takes the edge's word of where the subscription stands. Called with s.mu held.
func (sub *Subscription) subscribed(m *wirev1.Subscribed) {
	resumed := sub.active
	sub.wait.Reset()
	if !topicfilter.Wild(sub.Filter()) {
		sub.stand(sub.Filter(), m.GetEpoch(), m.GetHead(), m.GetRecovered(), m.GetMissed(), resumed)
	} else if len(m.GetPositions()) == 0 && (m.GetMissed() > 0) {
		sub.s.gap(Gap{Filter: sub.Filter(), Missed: m.GetMissed(), Code: wirev1.Code_CODE_RETENTION})
	}
	for _, p := range m.GetPositions() {
		sub.stand(p.GetTopic(), p.GetEpoch(), p.GetHead(), p.GetRecovered(), p.GetMissed(), resumed)
	}
	if !sub.active {
		sub.active = true
		sub.ready.open()
	}
}

// stand places the cursor of one topic.
func (sub *Subscription) stand(topic string, epoch, head uint64, recovered bool, missed uint64, resumed bool) {
	t := sub.s.topic(topic)
	c := t.cursor(sub)
	lost := sub.asked(resumed) && !recovered
	why := wirev1.Code_CODE_RETENTION
	if epoch == 0 && !resumed {
		why = wirev1.Code_CODE_UNSUPPORTED
	}
	if c == nil || sub.shared() || epoch == 0 && !lost {
		// an ephemeral topic has neither epoch nor positions
		if c != nil && why == wirev1.Code_CODE_UNSUPPORTED && sub.wantsLog() {
			sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Code: why})
		}
		return
	}
	if epoch == 0 && resumed && c.Epoch == 0 && c.High == 0 {
		return // nothing was had of it, and it was told that there is no log
	}
	if c.Epoch == 0 && c.High == 0 {
		c.Restart(sub.startAt(topic, head))
		if sub.request.GetStart() == wirev1.Start_START_SESSION {
			c.ForgetDone() // what the session still lacks may lie anywhere
		}
	}
	switch {
	case epoch != 0 && c.Epoch != 0 && c.Epoch != epoch:
		sub.startOver(c, epoch, Gap{Topic: topic, Missed: missed, Code: wirev1.Code_CODE_EPOCH_CHANGED})
		return
	case lost && c.High > head:
		// The log has not come as far as the position: what it has, and will have, under these
		// numbers is not what was had.
		sub.startOver(c, epoch, Gap{Topic: topic, Missed: missed, Code: why})
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

// wantsLog reports whether the subscription asks for what only durable topics have. A position that
// was not recovered is told anyway.
func (sub *Subscription) wantsLog() bool {
	switch sub.request.GetStart() {
	case wirev1.Start_START_EARLIEST, wirev1.Start_START_LAST_N, wirev1.Start_START_SESSION:
		return true
	}
	return sub.request.GetAck() && !sub.shared()
}

// startOver gives up what was known of a topic, whose positions are void.
func (sub *Subscription) startOver(c *cursor, epoch uint64, why Gap) {
	c.Restart(epoch, 0)
	c.Void = true
	why.Filter, why.Epoch = sub.Filter(), epoch
	sub.s.gap(why)
}

// standAgain notes what a ranked subscription without a session has missed: it goes on with what is
// live.
func (sub *Subscription) standAgain(c *cursor, topic string, head uint64) {
	if sub.request.GetStart() == wirev1.Start_START_SESSION {
		return
	}
	if n, first := c.Done.Lacks(head); n > 0 {
		sub.s.gap(Gap{Filter: sub.Filter(), Topic: topic, Epoch: c.Epoch, From: first, To: head, Missed: n, Code: wirev1.Code_CODE_RETENTION})
	}
	c.Restart(c.Epoch, head)
}

// asked reports whether the Subscribe just answered named a position, so that recovered=false is a
// loss.
func (sub *Subscription) asked(resumed bool) bool {
	start := sub.request.GetStart()
	if start == wirev1.Start_START_SESSION {
		return false // missed says it all
	}
	return resumed || start == wirev1.Start_START_AFTER_SEQ || len(sub.request.GetPositions()) > 0
}

// startAt is the position before the first message that the first request asked for, and its epoch
// where it named one.
func (sub *Subscription) startAt(topic string, head uint64) (epoch, seq uint64) {
	r := sub.request
	for _, p := range r.GetPositions() {
		if p.GetTopic() == topic {
			return p.GetEpoch(), p.GetSeq()
		}
	}
	switch r.GetStart() {
	case wirev1.Start_START_EARLIEST, wirev1.Start_START_SESSION:
		return 0, 0
	case wirev1.Start_START_AFTER_SEQ:
		return r.GetEpoch(), r.GetSeq()
	case wirev1.Start_START_LAST_N:
		return 0, head - min(head, r.GetSeq())
	}
	return 0, head
}
