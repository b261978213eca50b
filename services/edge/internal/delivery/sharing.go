package delivery

import (
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Subscriptions of a session share one delivery, which names each of them. Where they have a track,
// the track is what they share. An ephemeral message of a topic that nobody here subscribes to by
// its name has no track: then the subscriptions that match it are looked for.

// sharing are the subscriptions that share a message without a track with s: of a session all open
// ones with wildcards that match the topic, else s alone. It is good until it is asked for again.
func (f *fanout) sharing(s *sub, name string) []*sub {
	f.shared = f.shared[:0]
	switch {
	case s == nil:
		return nil
	case s.kind != kindSession:
		f.shared = append(f.shared, s)
		return f.shared
	}
	for _, o := range s.c.subs.All() {
		if o.kind == kindSession && o.wildcard && o.active && o.open && topic.Match(o.filter(), name) {
			f.shared = append(f.shared, o)
		}
	}
	f.hub.looked(s.c.subs.Len())
	return f.shared
}

// offerSession hands the ephemeral messages in hand to all subscriptions of a session that match
// them, once.
func (f *fanout) offerSession(s *sub) {
	sess := s.c.sess
	if sess.stamp == f.serial {
		return
	}
	sess.stamp = f.serial
	overflow, ranked, alike := s.overflow, true, true
	for _, o := range f.sharing(s, f.ms[0].Topic) {
		ranked, alike = ranked && o.topK > 0, alike && wantAlike(o, s)
		if o.overflow != overflow {
			// as in settle: nothing may be left out that one of them wants
			overflow = overflowDefault
		}
	}
	if overflow == overflowConflate && !alike {
		overflow = overflowDefault
	}
	if ranked {
		f.hub.ranked.offerEphemeral(s.c, nil, s, wirev1.Overflow(overflow))
		return
	}
	f.ephemeralRun(s.c, nil, s, wirev1.Overflow(overflow), 0)
}

// wantedBy reports whether one of the subscriptions wants a message.
func wantedBy(subs []*sub, m *exchange.Message) bool {
	v := m.Verdicts.Load()
	for _, s := range subs {
		if s.judge(v) == passes {
			return true
		}
	}
	return false
}

// wantAlike reports whether two subscriptions that share messages want the same ones, as far as is
// known.
func wantAlike(a, b *sub) bool {
	return a == b || !a.filtered && !b.filtered || a.filtered && b.filtered && a.where == b.where && a.where != 0
}

// mostOf is how many of the best the subscriptions want together.
func mostOf(subs []*sub) (topK uint32) {
	for _, s := range subs {
		topK = max(topK, s.topK)
	}
	return topK
}

// address makes a message one for those of the subscriptions that want it.
func (f *fanout) address(it *sendq.Item, subs []*sub) {
	v := it.Message().Verdicts.Load()
	f.hub.ids = f.hub.ids[:0]
	lowest := subs[0].id
	for _, s := range subs {
		lowest = min(lowest, s.id)
		if s.judge(v) == passes {
			f.hub.ids = append(f.hub.ids, s.id)
		}
	}
	f.hub.looked(len(subs))
	it.ForSubscriptions(lowest, f.hub.ids, len(subs) > 1 && len(f.hub.ids) > 0)
}
