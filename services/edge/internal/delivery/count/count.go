// Package count counts, for one topic after the other, the connections of a loop with a
// subscription that matches it, some at a time.
package count

import (
	"math"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
	"github.com/pushmesh/pushmesh/services/edge/internal/wildcards"
)

// Slice is how many subscriptions are looked at in one go.
const Slice = 256

// Config says where subscriptions are found, and who takes turns with the counts.
type Config struct {
	Jobs    *walk.Jobs
	Conns   *state.Conns
	Topics  *state.Topics
	Filters *wildcards.Filters[state.Subscription]
	Groups  *membership.Groups
}

// Desk takes counts, and lets one at a time mark connections.
type Desk struct {
	Config
	serial uint32 // of the topic in hand, so that no connection counts twice
	job    *job
}

// job is one count. Subscriptions that come or go while it is under way may be counted or not.
type job struct {
	desk    *Desk
	topics  []string
	done    func(counts []uint64)
	counts  []uint64
	begun   bool // the topic after counts
	n       uint64
	track   int                 // of its tracks, next
	wild    []*state.Filter     // that match; nil: nobody has that one any more
	at      int                 // subscriptions of the first that are left, at most
	members []*membership.List  // of groups, that match; nil: nobody has that one any more
	visit   func(c *state.Conn) // of each; may be nil
}

// Begin begins a count: visit gets each connection once for a topic, and may be nil; done gets the
// counts, one for each topic.
func (d *Desk) Begin(topics []string, visit func(c *state.Conn), done func(counts []uint64)) {
	d.Jobs.Push(&job{desk: d, topics: topics, visit: visit, done: done})
}

// Forget takes a filter that nobody has any more out of the count that is under way.
func (d *Desk) Forget(f *state.Filter) {
	if d.job != nil {
		wildcards.Forget(d.job.wild, f)
	}
}

// UnderWay is how many connections were counted for the topic in hand; 0 where there is none.
func (d *Desk) UnderWay() uint64 {
	if d.job == nil {
		return 0
	}
	return d.job.n
}

// Step implements walk.Job.
func (j *job) Step() bool {
	d := j.desk
	if d.job == nil {
		d.job = j
	}
	if d.job != j {
		return false // the marks on connections are of one count at a time
	}
	if len(j.counts) == len(j.topics) {
		d.job = nil
		j.done(j.counts)
		return true
	}
	name := j.topics[len(j.counts)]
	if !j.begun {
		d.serial++
		j.begun, j.n, j.track, j.wild, j.members = true, 0, 0, nil, nil
		j.at = math.MaxInt
		if request.Topic(name) == nil {
			j.wild = d.Filters.Match(nil, name)
			j.members = d.Groups.Of(name)
		}
	}
	if !j.slice(d.Topics.ByName.Get(name)) {
		return false
	}
	j.counts, j.begun = append(j.counts, j.n), false
	return false
}

// slice looks at some subscriptions of the topic in hand, and reports whether that was the end.
func (j *job) slice(ts *state.Topic) bool {
	left := Slice
	for ; ts != nil && j.track < ts.Tracks.Len() && left > 0; left-- {
		j.seen(ts.Tracks.At(j.track).Conn)
		j.track++
	}
	for ; left > 0 && len(j.wild) > 0; left-- {
		// From the last to the first: what takes the place of one that goes was seen, or will be.
		f := j.wild[0]
		if f != nil {
			j.at = min(j.at, f.Subscriptions.Len())
		}
		if f == nil || j.at == 0 {
			j.wild, j.at = j.wild[1:], math.MaxInt
			continue
		}
		j.at--
		if s := f.Subscriptions.At(j.at); s.Active {
			j.seen(s.Conn)
		}
	}
	for ; left > 0 && len(j.members) > 0; left-- {
		l := j.members[0]
		if j.at = min(j.at, len(l.Members)); j.at == 0 {
			j.members, j.at = j.members[1:], math.MaxInt
			continue
		}
		j.at--
		if g := l.Members[j.at]; g.Open() {
			j.seen(j.desk.Conns.Get(g.Conn.Slot))
		}
	}
	return left > 0
}

func (j *job) seen(c *state.Conn) {
	if c.Counted == j.desk.serial || c.Phase != state.Open {
		return
	}
	c.Counted = j.desk.serial
	j.n++
	if j.visit != nil {
		j.visit(c)
	}
}
