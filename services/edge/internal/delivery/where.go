package delivery

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A content filter is compiled and evaluated off the loops: a message comes with what each program
// that is in use for its topic says of it. A subscription with a filter names itself in its
// messages, and so has a track of its own or its session's.

// filter has the mesh compile the subscription's content filter; it joins after that.
func (h *Hub) filter(s *sub, m *wirev1.Subscribe) {
	s.filtered, s.unjoined = true, true
	if s.subMore == noSubMore {
		s.subMore = h.subMores.Take()
	}
	if s.kind == kindPlain {
		s.kind = kindOwn
	}
	h.mesh.Filter(h.handle(s.c), s.ref, m.GetFilter(), m.GetWhere())
}

// unfilter ends what filter began.
func (h *Hub) unfilter(s *sub) {
	h.mesh.Unfilter(h.handle(s.c), s.ref)
	s.where = 0
}

// filterReady goes on with a subscription: its messages are judged from here on.
func (h *Hub) filterReady(c *conn, e exchange.Filtered) {
	s := c.subByRef(e.Sub)
	if s == nil || s.dead || !s.unjoined {
		h.stats.StaleEvents++
		return
	}
	if e.Err != nil {
		h.refuseSub(s, e.Err)
		return
	}
	s.where, s.unjoined = e.Program, false
	h.join(s, strings.Clone(s.filter()))
}

// verdict is what content filters say of a message.
type verdict uint8

const (
	passes verdict = iota
	filtered
	unjudged // it came before the filter; the log's reader judges it again
)

// judge reports whether any of the track's subscriptions wants a message.
func (h *Hub) judge(t *track, m *exchange.Message) verdict {
	if t.kind == kindPlain {
		return passes
	}
	v := m.Verdicts.Load()
	all := t.first.judge(v)
	for i := 0; i < len(t.also) && all != passes; i++ {
		if one := t.also[i].judge(v); one != filtered {
			all = one
		}
	}
	h.addCost(len(t.also))
	return all
}

func (s *sub) judge(v *exchange.Verdicts) verdict {
	if !s.filtered {
		return passes
	}
	pass, known := v.Of(s.where)
	switch {
	case pass:
		return passes
	case known:
		return filtered
	}
	return unjudged
}

// wanting are the client's numbers of the subscriptions that want a message, which one of them
// does.
func (t *track) wanting(dst []uint32, m *exchange.Message) []uint32 {
	v := m.Verdicts.Load()
	if t.first.open && t.first.judge(v) == passes {
		dst = append(dst, t.first.id)
	}
	for _, s := range t.also {
		if s.open && s.judge(v) == passes {
			dst = append(dst, s.id)
		}
	}
	if len(dst) == 0 {
		return t.ids(dst) // they ended since it was queued
	}
	return dst
}

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
	f.hub.addCost(s.c.subs.Len())
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
	f.hub.addCost(len(subs))
	it.ForSubscriptions(lowest, f.hub.ids, len(subs) > 1 && len(f.hub.ids) > 0)
}
