package membership

import (
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Due gives back what was not ACKed in time and what has waited as long, and says when the next is
// due, next at the latest. unsent: some of what is due is in the queue yet, which is to be
// recalled.
func (m *Member) Due(now, next int64) (at int64, unsent bool) {
	for i := range m.Live() {
		e := &m.Live()[i]
		switch {
		case e.Message == nil:
		case now < e.Due:
			next = min(next, e.Due)
		case e.State == Queued:
			unsent = true
		case e.State == Waiting: // another may have room
			m.settle(e, meshv1.GroupSettle_HOW_UNSENT, 0)
		default:
			m.timeOut(e)
		}
	}
	m.advance()
	return next, unsent
}

// Recall gives a message back that has been in the queue until it was due, and reports whether it
// is such a one: the client does not read.
func (m *Member) Recall(msg *exchange.Message, now int64) bool {
	e := m.find(msg)
	if e == nil || now < e.Due {
		return false
	}
	m.settle(e, meshv1.GroupSettle_HOW_UNSENT, 0)
	m.groups.stats.Recalled++
	return true
}

// Recalled ends what Recall did: a message of which a part has left can't be taken back, and counts
// as one that timed out.
func (m *Member) Recalled(now int64) {
	for i := range m.Live() {
		if e := &m.Live()[i]; e.Message != nil && e.State == Queued && now >= e.Due {
			m.timeOut(e)
		}
	}
	m.advance()
}

// timeOut gives a message back that the client may have, and has not ACKed in time.
func (m *Member) timeOut(e *Assigned) {
	m.groups.stats.AckTimeouts++
	m.late = append(m.late, &exchange.Message{Topic: e.Message.Topic, Epoch: e.Message.Epoch, Seq: e.Message.Seq})
	m.bytes += lateBytes
	m.settle(e, meshv1.GroupSettle_HOW_TIMEOUT, 0)
}

// Failed reports whether as much timed out as a window's worth of messages with all their attempts.
func (m *Member) Failed() bool {
	return m.policy != nil && len(m.late) >= int(m.window*(m.policy.MaxRedeliveries+1))
}
