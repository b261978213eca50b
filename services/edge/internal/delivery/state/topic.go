package state

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/wildcards"
)

// Topic is what the loop knows of a topic that has a subscription of its own name, or that is
// durable and has come by under a wildcard. It lies in Topics.Slab.
type Topic struct {
	name     string // of the loop's Texts: what outlives the topic is cloned
	link     *Topic // in Topics.ByName
	policies uint32 // Topics.changes when the policy was looked up
	policy   uint32 // of Topics.policies

	// Last is the highest seq that came live, under Epoch; 0: none yet.
	Epoch, Last uint64

	// Tracks hold every delivery state of this topic; fan-out walks them.
	Tracks slab.List[Track]
	// Exact counts the subscriptions whose filter is this very topic.
	Exact uint32
	// Heard counts the subscriptions that are still beginning, and are to know what came live.
	Heard uint32
	// WildAt is how far the log of wildcards was followed: wildcard subscriptions before it have
	// their track here.
	WildAt uint64
	Reads  *replay.Topic[TrackRef] // nil: nobody waits for the log
}

// Name is good until the topic is forgotten.
func (ts *Topic) Name() string { return ts.name }

// Next is for Topics.ByName.
func (ts *Topic) Next() **Topic { return &ts.link }

// Came notes how far the live stream of the topic is.
func (ts *Topic) Came(m *exchange.Message) {
	switch {
	case m.Epoch > ts.Epoch:
		ts.Epoch, ts.Last = m.Epoch, m.Seq
	case m.Epoch == ts.Epoch:
		ts.Last = max(ts.Last, m.Seq)
	}
}

// Filter is one filter with wildcards, and those who subscribed to it on this loop.
type Filter = wildcards.Filter[Subscription]

// Topics are those that the loop knows, and the policies that they have.
type Topics struct {
	Slab      slab.Slab[Topic]
	ByName    *slab.Names[Topic, *Topic]
	texts     *slab.Texts
	policyFor func(topic string) *policy.Policy
	// changes counts changes of policies: a topic with another number asks again.
	changes uint32
	// policies are those in use, by number, for topics lie where the collector does not see what
	// they refer to.
	policies []*policy.Policy
}

// NewTopics knows none. Lists lie in arrays, and names in texts.
func NewTopics(policyFor func(topic string) *policy.Policy, arrays *slab.Arrays, texts *slab.Texts) Topics {
	return Topics{policyFor: policyFor, changes: 1, texts: texts, ByName: slab.NewNames[Topic](arrays)}
}

// Policy of a topic.
func (s *Topics) Policy(ts *Topic) *policy.Policy {
	if ts.policies != s.changes {
		ts.policy, ts.policies = s.number(s.policyFor(ts.name)), s.changes
	}
	return s.policies[ts.policy]
}

// number of a policy.
func (s *Topics) number(p *policy.Policy) uint32 {
	i := slices.Index(s.policies, p)
	if i < 0 {
		i = len(s.policies)
		s.policies = append(s.policies, p)
	}
	return uint32(i)
}

// PoliciesChanged has every topic ask for its policy again.
func (s *Topics) PoliciesChanged() {
	s.changes++
	clear(s.policies)
	s.policies = s.policies[:0]
}

// Get finds a topic, or begins to know it.
func (s *Topics) Get(name string) *Topic {
	ts := s.ByName.Get(name)
	if ts == nil {
		ts = s.Slab.Take()
		ts.name = s.texts.Put(name)
		s.ByName.Put(ts)
	}
	return ts
}

// Forget gives a topic back.
func (s *Topics) Forget(ts *Topic) {
	s.ByName.Drop(ts)
	s.texts.Drop(ts.name)
	s.Slab.Free(ts)
}
