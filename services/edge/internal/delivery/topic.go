package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/wildcards"
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
	reads  *replay.Topic[trackRef] // nil: nobody waits for the log
}

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
		h.replay.reads.Forget(&ts.reads)
		h.topics.slab.Free(ts)
	}
}

// filter is one filter with wildcards, and those who subscribed to it on this loop.
type filter = wildcards.Filter[sub]

// wildSubs are the subscriptions with wildcards of this loop.
type wildSubs struct {
	hub   *Hub
	index wildcards.Filters[sub]
	log   wildcards.Log[subRef]
}

func (w *wildSubs) subscribe(s *sub, name string) {
	f := w.index.Add(name)
	s.subMore = w.hub.subMores.Take()
	s.wild, s.at = f, uint32(f.Subscriptions.Len())
	f.Subscriptions.Append(&w.hub.arrays, s)
}

// unsubscribe takes s out of its filter's list. Where a fan-out is walking it, those it has not
// reached stay ahead of it.
func (w *wildSubs) unsubscribe(s *sub) {
	f, at := s.wild, int(s.at)
	if last, moves := w.hub.fan.wild.StepBack(f, at); moves {
		moved := f.Subscriptions.At(last)
		f.Subscriptions.Set(at, moved)
		moved.at = uint32(at)
		at = last
	}
	if moved := f.Subscriptions.Take(&w.hub.arrays, at); moved != nil {
		moved.at = uint32(at)
	}
	s.wild = nil
	if f.Subscriptions.Len() > 0 {
		return
	}
	w.hub.fan.wild.Forget(f)
	if w.hub.counts.job != nil {
		wildcards.Forget(w.hub.counts.job.wild, f)
	}
	w.index.Drop(f)
}
