package delivery

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A content filter is compiled and evaluated off the loops: a message comes with what each program
// that is in use for its topic says of it. A subscription with a filter names itself in its
// messages, and so has a track of its own or its session's.

// filter has the mesh compile the subscription's content filter; it joins after that.
func (h *Hub) filter(s *state.Subscription, m *wirev1.Subscribe) {
	s.Filtered, s.Unjoined = true, true
	h.subs.Picks(s)
	h.mesh.Filter(h.handle(s.Conn), s.Ref, m.GetFilter(), m.GetWhere())
}

// filterReady goes on with a subscription: its messages are judged from here on.
func (h *Hub) filterReady(c *state.Conn, e exchange.Filtered) {
	s := c.SubByRef(e.Sub)
	if s == nil || s.Dead || !s.Unjoined {
		h.stats.StaleEvents++
		return
	}
	if e.Err != nil {
		h.refuseSub(s, e.Err)
		return
	}
	s.Where, s.Unjoined = e.Program, false
	h.join(s, strings.Clone(s.Filter()))
}

// Subscriptions of a session share one delivery, which names each of them. Where they have a track,
// the track is what they share. An ephemeral message of a topic that nobody here subscribes to by
// its name has no track: then the subscriptions that match it are looked for.

// sharing are the subscriptions that share a message without a track with s: of a session all open
// ones with wildcards that match the topic, else s alone. It is good until it is asked for again.
func (f *fanout) sharing(s *state.Subscription, name string) []*state.Subscription {
	f.shared = f.shared[:0]
	switch {
	case s == nil:
		return nil
	case s.Kind != state.KindSession:
		f.shared = append(f.shared, s)
		return f.shared
	}
	for _, o := range s.Conn.Subs.All() {
		if o.Kind == state.KindSession && o.Wildcard && o.Active && o.Open && topic.Match(o.Filter(), name) {
			f.shared = append(f.shared, o)
		}
	}
	f.hub.addCost(s.Conn.Subs.Len())
	return f.shared
}

// offerSession hands the ephemeral messages in hand to all subscriptions of a session that match
// them, once.
func (f *fanout) offerSession(s *state.Subscription) {
	sess := s.Conn.Session
	if sess.Stamp == f.serial {
		return
	}
	sess.Stamp = f.serial
	overflow, ranked, alike := s.Overflow, true, true
	for _, o := range f.sharing(s, f.ms[0].Topic) {
		ranked, alike = ranked && o.TopK > 0, alike && state.WantAlike(o, s)
		if o.Overflow != overflow {
			// as in settle: nothing may be left out that one of them wants
			overflow = state.OverflowDefault
		}
	}
	if overflow == state.OverflowConflate && !alike {
		overflow = state.OverflowDefault
	}
	if ranked {
		f.hub.ranked.offerEphemeral(s.Conn, nil, s, wirev1.Overflow(overflow))
		return
	}
	f.ephemeralRun(s.Conn, nil, s, wirev1.Overflow(overflow), 0)
}

// address makes a message one for those of the subscriptions that want it.
func (f *fanout) address(it *sendq.Item, subs []*state.Subscription) {
	v := it.Message().Verdicts.Load()
	f.hub.ids = f.hub.ids[:0]
	lowest := subs[0].ID
	for _, s := range subs {
		lowest = min(lowest, s.ID)
		if s.Judge(it.Message(), v) == state.Passes {
			f.hub.ids = append(f.hub.ids, s.ID)
		}
	}
	f.hub.addCost(len(subs))
	it.ForSubscriptions(lowest, f.hub.ids, len(subs) > 1 && len(f.hub.ids) > 0)
}
