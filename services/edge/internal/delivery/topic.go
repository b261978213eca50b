package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// topicState is what the loop knows of a topic that has a subscription of its own name, or that is
// durable and has come by under a wildcard. It lies in the hub's slab.
type topicState struct {
	name     string      // of the hub's Texts: what outlives the topic is cloned
	link     *topicState // in hub.topics
	policies uint32      // hub.topics.changes when the policy was looked up
	policy   uint32      // of hub.topics.policies

	// last is the highest seq that came live, under epoch; 0: none yet.
	epoch, last uint64

	// tracks hold every delivery state of this topic; fan-out walks them.
	tracks slab.List[track]
	// exact counts the subscriptions whose filter is this very topic.
	exact uint32
	// wildAt is how far wildcards.log was followed: wildcard subscriptions before it have their
	// track here.
	wildAt uint64
	reads  *topicReads // nil: nobody waits for the log
}

// topicReads are the tracks that wait for a range of the log, by its first seq.
type topicReads struct{ from map[uint64][]trackRef }

// Name and Next are for hub.topics.
func (ts *topicState) Name() string       { return ts.name }
func (ts *topicState) Next() **topicState { return &ts.link }

// topics are those that the loop knows, and the policies that they have.
type topics struct {
	slab      slab.Slab[topicState]
	byName    *slab.Names[topicState, *topicState]
	policyFor func(topic string) *policy.Policy
	// changes counts changes of policies: a topic with another number asks again.
	changes uint32
	// policies are those in use, by number, for topics lie where the collector does not see what
	// they refer to.
	policies []*policy.Policy
}

func (s *topics) policy(ts *topicState) *policy.Policy {
	if ts.policies != s.changes {
		ts.policy, ts.policies = s.number(s.policyFor(ts.name)), s.changes
	}
	return s.policies[ts.policy]
}

// number of a policy.
func (s *topics) number(p *policy.Policy) uint32 {
	i := slices.Index(s.policies, p)
	if i < 0 {
		i = len(s.policies)
		s.policies = append(s.policies, p)
	}
	return uint32(i)
}

// policiesChanged has every topic ask for its policy again.
func (s *topics) policiesChanged() {
	s.changes++
	clear(s.policies)
	s.policies = s.policies[:0]
}

func (h *Hub) topic(name string) *topicState {
	ts := h.topics.byName.Get(name)
	if ts == nil {
		ts = h.topics.slab.Take()
		ts.name = h.texts.Put(name)
		h.topics.byName.Put(ts)
	}
	return ts
}

// letGoTopic forgets a topic that nobody needs any more.
func (h *Hub) letGoTopic(ts *topicState) {
	if ts.tracks.Len() == 0 && ts.exact == 0 && h.fan.ts != ts {
		h.topics.byName.Drop(ts)
		h.texts.Drop(ts.name)
		if ts.reads != nil {
			h.replay.reads.Give(ts.reads)
		}
		h.topics.slab.Free(ts)
	}
}

// wildLog remembers wildcard subscriptions in the order they became active, so that a topic catches
// up with new ones without matching all of them again.
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

// since are the subscriptions that became active at numbers from at on; false where they are not
// kept any more.
func (l *wildLog) since(at uint64) ([]subRef, bool) {
	if at < l.base {
		return nil, false
	}
	return l.subs[at-l.base:], true
}

// filter is one filter with wildcards and those who subscribed to it on this loop.
type filter struct {
	name string
	subs slab.List[sub]
}

// wildcards are the filters with wildcards that somebody on this loop subscribed to.
type wildcards struct {
	hub    *Hub
	byName map[string]*filter
	index  topic.Index[*filter]
	log    wildLog
	pool   slab.Pool[filter]
}

func (w *wildcards) subscribe(s *sub, name string) {
	f := w.byName[name]
	if f == nil {
		f = w.pool.Take()
		f.name = name
		w.byName[f.name] = f
		w.index.Add(f.name, f)
	}
	s.subMore = w.hub.subMores.Take()
	s.wild, s.at = f, uint32(f.subs.Len())
	f.subs.Append(&w.hub.arrays, s)
}

// unsubscribe takes s out of its filter's list. Where a fan-out is walking it, those it has not
// reached stay ahead of it.
func (w *wildcards) unsubscribe(s *sub) {
	f, at := s.wild, int(s.at)
	if walk := &w.hub.fan.wild; walk.in() == f && at < walk.at {
		walk.at--
		edge := f.subs.At(walk.at)
		f.subs.Set(at, edge)
		edge.at = uint32(at)
		at = walk.at
	}
	if moved := f.subs.Take(&w.hub.arrays, at); moved != nil {
		moved.at = uint32(at)
	}
	s.wild = nil
	if f.subs.Len() > 0 {
		return
	}
	forget(w.hub.fan.wild.filters, f)
	if w.hub.counts.job != nil {
		forget(w.hub.counts.job.wild, f)
	}
	w.index.Remove(f.name, f)
	delete(w.byName, f.name)
	w.pool.Give(f)
}

// forget takes f out of a walk under way.
func forget[V any](walk []*V, f *V) {
	if i := slices.Index(walk, f); i >= 0 {
		walk[i] = nil
	}
}

// wildWalk goes over the subscriptions of some filters, as far as it was asked to.
type wildWalk struct {
	filters []*filter // nil: nobody has that one any more
	nth, at int       // the filter in hand, and the next of its subscriptions
}

// in is the filter in hand; nil where there is none.
func (w *wildWalk) in() *filter {
	if w.nth == len(w.filters) {
		return nil
	}
	return w.filters[w.nth]
}

// next is nil once all were.
func (w *wildWalk) next() *sub {
	for ; w.nth < len(w.filters); w.nth, w.at = w.nth+1, 0 {
		if f := w.filters[w.nth]; f != nil && w.at < f.subs.Len() {
			w.at++
			return f.subs.At(w.at - 1)
		}
	}
	return nil
}

// begin is over those that match a topic.
func (w *wildWalk) begin(h *Hub, topic string) {
	w.filters, w.nth, w.at = h.wildcards.index.Match(w.filters[:0], topic), 0, 0
}

func (w *wildWalk) end() {
	clear(w.filters)
	w.filters, w.nth, w.at = w.filters[:0], 0, 0
}
