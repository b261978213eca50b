// Package membership is what an event loop knows of the subscriptions of its connections that share
// messages with others: which messages the dispatcher of their group has assigned to each, and what
// has become of those. It decides what goes back to the dispatcher, and when; delivery queues the
// messages, and says when they have left and what the client answers. Package groups carries the
// answers to dispatchers.
package membership

import (
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Delivery is what members need of the loop's delivery.
type Delivery interface {
	// Policy is that of a topic, as of now.
	Policy(topic string) *policy.Policy
	// Acknowledged notes that a member's client has ACKed a message.
	Acknowledged(m *Member, msg *exchange.Message)
}

// Stats are plain counters.
type Stats struct {
	AckTimeouts uint64 // messages that went back un-ACKed
	Recalled    uint64 // messages that went back unsent, because their member's client did not read
}

// Groups are the members on one loop. They are used by that loop alone.
type Groups struct {
	delivery Delivery
	mesh     exchange.Groups
	jobs     *walk.Jobs
	cost     *walk.Cost

	lists map[string]*List
	wild  topic.Index[*List] // of those, with wildcards
	// answers are what the dispatchers will be told of messages.
	answers  []exchange.GroupSettled
	policies uint32 // changes of policies
	stats    Stats
}

// List is the members that subscribed to one filter.
type List struct {
	filter  string
	Members []*Member
}

// New makes an empty one.
func New(d Delivery, mesh exchange.Groups, jobs *walk.Jobs, cost *walk.Cost) *Groups {
	return &Groups{delivery: d, mesh: mesh, jobs: jobs, cost: cost, lists: map[string]*List{}}
}

// Stats so far.
func (g *Groups) Stats() Stats { return g.stats }

// PoliciesChanged has members ask for the policies of their topics again.
func (g *Groups) PoliciesChanged() { g.policies++ }

// Fits reports whether one more filter with wildcards can be matched cheaply.
func (g *Groups) Fits(filter string) bool { return g.wild.Fits(filter) }

// Len is how many filters have members.
func (g *Groups) Len() int { return len(g.lists) }

// AtRest reports whether the dispatchers have been told everything.
func (g *Groups) AtRest() bool { return len(g.answers) == 0 }

// Of are the lists whose filters match a topic. A list that is empty later is of no use any more.
func (g *Groups) Of(name string) []*List {
	all := g.wild.Match(nil, name)
	if l := g.lists[name]; l != nil {
		all = append(all, l)
	}
	return all
}

// NamedBy appends the connections of members that have joined and whose filter is the name itself.
func (g *Groups) NamedBy(dst []exchange.Conn, name string) []exchange.Conn {
	if l := g.lists[name]; l != nil {
		for _, m := range l.Members {
			if m.Open() {
				dst = append(dst, m.Conn)
			}
		}
	}
	return dst
}

func (g *Groups) list(m *Member) {
	l := g.lists[m.Filter]
	if l == nil {
		l = &List{filter: m.Filter}
		g.lists[m.Filter] = l
		if topic.IsFilter(m.Filter) {
			g.wild.Add(m.Filter, l)
		}
	}
	m.of, m.at = l, len(l.Members)
	l.Members = append(l.Members, m)
}

func (g *Groups) unlist(m *Member) {
	l, last := m.of, len(m.of.Members)-1
	l.Members[m.at] = l.Members[last]
	l.Members[m.at].at = m.at
	l.Members[last] = nil
	if l.Members = l.Members[:last]; last > 0 {
		return
	}
	if topic.IsFilter(l.filter) {
		g.wild.Remove(l.filter, l)
	}
	delete(g.lists, l.filter)
}

// answer gathers what the dispatchers are told once in a while.
func (g *Groups) answer(m *Member, msg *exchange.Message, how meshv1.GroupSettle_How, delayMS uint32) {
	if len(g.answers) == 0 {
		g.jobs.Push(flushing{g})
	}
	g.answers = append(g.answers, exchange.GroupSettled{Conn: m.Conn, Sub: m.Ref, Message: msg, How: how, DelayMS: delayMS})
}

type flushing struct{ g *Groups }

// Step implements walk.Job.
func (j flushing) Step() bool {
	j.g.flush()
	return true
}

func (g *Groups) flush() {
	if len(g.answers) > 0 {
		g.mesh.SettleGroup(g.answers)
		g.answers = nil
	}
}

// maxWindow bounds what one member has: its list is walked.
const maxWindow = 1024
