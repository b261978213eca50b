package hub

import (
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
)

// topicState is what the loop knows of a topic that has a subscription of its own name, or that is durable and has
// come by under a wildcard.
type topicState struct {
	name     string
	policy   *policy.Policy
	policies uint32

	// last is the highest seq that came live, under epoch; 0: none yet.
	epoch, last uint64

	// tracks hold every delivery state of this topic; fan-out walks them.
	tracks []*track
	// exact counts the subscriptions whose filter is this very topic.
	exact int
	// wildAt is how far hub.wildLog was followed: wildcard subscriptions before it have their track here.
	wildAt uint64
	// readers wait for a range of the log, by its first seq.
	readers map[uint64][]trackRef
}

func (h *Hub) topic(name string) *topicState {
	ts := h.topics[name]
	if ts == nil {
		ts = h.states.Take()
		ts.name = name
		h.topics[name] = ts
	}
	return ts
}

// letGoTopic forgets a topic that nobody needs any more.
func (h *Hub) letGoTopic(ts *topicState) {
	if len(ts.tracks) == 0 && ts.exact == 0 && h.fan.ts != ts {
		delete(h.topics, ts.name)
		h.states.Give(ts)
	}
}

// wildLog remembers wildcard subscriptions in the order they became active, so that a topic catches up with new ones without
// matching all of them again.
type wildLog struct {
	base uint64 // number of subs[0]; numbers begin at 1, so that a new topic is behind
	subs []subRef
}

const wildLogKept = 4096

func (l *wildLog) next() uint64 { return l.base + uint64(len(l.subs)) }

func (l *wildLog) add(s subRef) {
	if len(l.subs) >= wildLogKept {
		half := len(l.subs) / 2
		l.base += uint64(half)
		l.subs = append(l.subs[:0:0], l.subs[half:]...)
	}
	l.subs = append(l.subs, s)
}

// missing appends the active wildcard subscriptions that match and may have no track at ts yet.
func (h *Hub) missing(dst []subRef, ts *topicState) []subRef {
	l := &h.wildLog
	at := ts.wildAt
	ts.wildAt = l.next()
	if at < l.base {
		return h.matching(dst, ts.name)
	}
	for _, r := range l.subs[at-l.base:] {
		if s := r.get(); s != nil && s.active && topic.Match(s.filter(), ts.name) {
			dst = append(dst, r)
		}
	}
	return dst
}

// filter is one filter with wildcards and those who subscribed to it on this loop.
type filter struct {
	name string
	subs []*sub
}

func (h *Hub) addWild(s *sub, name string) {
	f := h.filters[name]
	if f == nil {
		f = h.filterSet.Take()
		f.name = name
		h.filters[f.name] = f
		h.wild.Add(f.name, f)
	}
	s.wild, s.at = f, uint32(len(f.subs))
	f.subs = append(f.subs, s)
}

func (h *Hub) dropWild(s *sub) {
	f := s.wild
	last := len(f.subs) - 1
	f.subs[s.at], f.subs[last].at = f.subs[last], s.at
	f.subs[last] = nil
	f.subs = f.subs[:last]
	if last == 0 {
		h.wild.Remove(f.name, f)
		delete(h.filters, f.name)
		h.filterSet.Give(f)
	}
}

// matching appends the wildcard subscriptions that match a topic.
func (h *Hub) matching(dst []subRef, name string) []subRef {
	h.matched = h.wild.Match(h.matched[:0], name)
	for _, f := range h.matched {
		for _, s := range f.subs {
			dst = append(dst, s.handle())
		}
	}
	return dst
}
