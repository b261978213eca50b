package delivery

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// lawful checks, of everything that a client of any test gets, what the protocol promises of any
// frame: nothing follows the Error that closes, no message is delivered for the first time behind
// GoAway, and whatever is delivered is for subscriptions of this connection that want its topic and
// have not ended.
func (c *client) lawful(f frame) {
	c.w.t.Helper()
	if len(c.asked) == 0 { // who sends bytes of its own knows what it asked for
		return
	}
	if c.last != nil {
		c.w.t.Fatalf("%s follows the last word of the connection: %v", f.text(), c.last)
	}
	switch m := f.m.(type) {
	case *wirev1.Error:
		if m.GetRef() == 0 {
			c.last = m
		}
	case *wirev1.GoAway:
		c.goes = true
	case *wirev1.Subscribed:
		if c.asked[m.GetId()] == nil || c.over[m.GetId()] {
			c.w.t.Fatalf("%s answers nothing", f.text())
		}
	case *wirev1.Unsubscribed:
		if c.asked[m.GetId()] == nil || c.over[m.GetId()] {
			c.w.t.Fatalf("%s ends nothing", f.text())
		}
		c.over[m.GetId()] = true
	case *wirev1.Message:
		if c.goes && m.GetAttempt() == 0 {
			c.w.t.Fatalf("%s is delivered behind GoAway", f.text())
		}
		c.concerns(m, m.GetTopic(), m.GetSubs())
	case *wirev1.Progress:
		if m.GetFrom() > m.GetTo() || (m.GetFrom() == 0) != (m.GetCode() == wirev1.Code_CODE_EPOCH_CHANGED) {
			c.w.t.Fatalf("%v names nothing", m)
		}
		c.concerns(m, m.GetTopic(), m.GetSubs())
	}
}

// concerns sees to it that a delivery names the subscriptions that it is for, or none where it is
// for the plain ones.
func (c *client) concerns(m proto.Message, name string, ids []uint32) {
	c.w.t.Helper()
	if len(ids) == 0 {
		for _, s := range c.asked {
			if topic.Match(s.GetFilter(), name) && plain(s) {
				return
			}
		}
		c.w.t.Fatalf("%v names no subscription, and there is no plain one for it", m)
	}
	for i, id := range ids {
		s := c.asked[id]
		if s == nil || c.over[id] || plain(s) || slices.Contains(ids[:i], id) || s.GetGroup() == "" && !topic.Match(s.GetFilter(), name) {
			c.w.t.Fatalf("%v names subscription %d, for which it is not: %v", m, id, s)
		}
	}
}

// plain reports whether a subscription shares its messages with the other plain ones of its
// connection, which the messages don't name.
func plain(s *wirev1.Subscribe) bool {
	return s.GetStart() == wirev1.Start_START_LIVE && len(s.GetPositions()) == 0 && s.GetGroup() == "" && s.GetWhere() == "" && s.GetRankTopK() == 0 && !s.GetNoEcho()
}
