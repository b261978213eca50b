package upstream

import (
	"context"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
)

// checkRetry is the pause after the store could not answer.
const checkRetry = 500 * time.Millisecond

// While what routers send may not come, because there is no NATS, no router, or one fell silent
// within doubtFor and may go on storing messages without being heard, heads are compared every
// apartEvery; seldom enough, though, that a fifth of the time goes into it at most.
const (
	apartEvery = time.Second
	doubtFor   = 10 * time.Second
)

// check compares the heads of durable topics with the stores. The topics of an owner are compared
// together, in a lane of their own, and so are filters, which need every owner: who is slow or away
// holds up its own. In a lane one comparison runs at a time; topics that come meanwhile are
// compared after it, because the heads may have been read before.
type check struct {
	all       bool
	topics    map[string]bool
	reasons   map[string]bool
	splitting bool
	lanes     map[string]*checkLane // by owner; filtersLane
	next      time.Time             // the backstop
	apart     time.Time             // not again for that reason before
	doubt     time.Time             // until then a router that fell silent may be storing messages
}

// checkLane is what is compared with one owner.
type checkLane struct {
	running   bool
	names     []string // to be compared next
	notBefore time.Time
	apart     time.Time // not again before because of being apart
}

// filtersLane is the lane of filters. No store has this address.
const filtersLane = "#"

func newCheck() check {
	return check{topics: map[string]bool{}, reasons: map[string]bool{}, lanes: map[string]*checkLane{}}
}

// waits reports whether a lane has something to be compared.
func (c *check) waits() bool {
	for _, l := range c.lanes {
		if len(l.names) > 0 {
			return true
		}
	}
	return false
}

func (c *check) lane(owner string) *checkLane {
	l := c.lanes[owner]
	if l == nil {
		l = &checkLane{}
		c.lanes[owner] = l
	}
	return l
}

// apart says that messages may be stored of which no router can tell this edge.
func (m *Mesh) apart() bool {
	return !m.cfg.Bus.Connected() || m.routers.Len() == 0 && !m.routers.unheard(m.now) || m.now.Before(m.check.doubt)
}

func (c *check) addAll(reason string) {
	c.all = true
	c.reasons[reason] = true
}

func (c *check) addTopic(reason, name string) {
	c.topics[name] = true
	c.reasons[reason] = true
}

// checkAll has every durable topic compared.
func (m *Mesh) checkAll(reason string) {
	m.check.addAll(reason)
}

// checkSome has some topics compared.
func (m *Mesh) checkSome(reason string, topics []string) {
	for _, t := range topics {
		if m.feed.Wanted(t) {
			m.check.addTopic(reason, t)
		}
	}
}

func (c *check) wanted() bool { return c.all || len(c.topics) > 0 }

// onlyApart says why heads are compared again and again for as long as it lasts.
const onlyApart = "apart"

// runCheck hands what is to be compared to the lanes, and has those go on that may.
func (m *Mesh) runCheck() {
	c := &m.check
	if c.wanted() && !c.splitting {
		m.split()
	}
	for owner, l := range c.lanes {
		m.runLane(owner, l)
	}
}

// split sorts what is to be compared by owner.
func (m *Mesh) split() {
	c := &m.check
	j := &splitting{m: m, began: m.now, all: c.all, patient: len(c.reasons) == 1 && c.reasons[onlyApart], some: c.topics}
	for reason := range c.reasons {
		m.stats.check(reason)
	}
	c.all, c.splitting = false, true
	c.topics, c.reasons = map[string]bool{}, map[string]bool{}
	if j.all {
		c.next = m.now.Add(m.cfg.BackstopEvery)
		m.work.Add(j)
		return
	}
	j.sort()
}

// namesOfStep is how many topics and filters one step looks at, whether they are durable: about 50
// µs.
const namesOfStep = 128

// splitting finds the durable topics and filters that loops want, in steps, and then sorts them by
// owner beside the mesh's goroutine: there may be very many. What is wanted from before its first
// step until after its last is found once. What is joined between two steps may be missed: its own
// join has its head asked for, or it is of a filter that was there all the time. Of what was left
// meanwhile the heads are compared in vain.
type splitting struct {
	began           time.Time
	m               *Mesh
	all, patient    bool
	some            map[string]bool // where not all are compared: these topics
	at              uint32          // in the table of interest
	topics, filters []string
}

// Step implements turns.Job.
func (j *splitting) Step() (done bool) {
	m := j.m
	var more bool
	j.at, more = m.table.Some(j.at, namesOfStep, func(name string) {
		switch {
		case topic.AnnouncesMembers(name): // whatever the policy of topics without one of their own
		case !topic.IsFilter(name):
			if m.feed.Follows(name) {
				j.topics = append(j.topics, name)
			}
		case m.feed.IsBased(name) || m.cfg.DurableAny(name):
			j.filters = append(j.filters, name)
		}
	})
	if more {
		return false
	}
	j.some = nil // they are among all
	j.sort()
	return true
}

// sort hands the lanes what was found.
func (j *splitting) sort() {
	m := j.m
	m.group.Go("edge-mesh-check", func(context.Context) {
		parts := map[string][]string{}
		part := func(t string) {
			owner := m.ownerOf(t)
			parts[owner] = append(parts[owner], t)
		}
		for _, t := range j.topics {
			part(t)
		}
		for t := range j.some {
			part(t)
		}
		if len(j.filters) > 0 {
			parts[filtersLane] = j.filters
		}
		m.ops.Do(func() {
			c := &m.check
			c.splitting = false
			c.apart = m.now.Add(max(apartEvery, 4*m.now.Sub(j.began)))
			c.handOut(m.now, parts, j.all, j.patient)
		})
	})
}

// handOut gives each lane its part. all: that is all there is for it; patient: a lane that was
// compared a moment ago may wait.
func (c *check) handOut(now time.Time, parts map[string][]string, all, patient bool) {
	if all && !patient { // what is retried for an owner is among the parts, or not wanted any more
		for _, l := range c.lanes {
			l.names = nil
		}
	}
	for owner, names := range parts {
		l := c.lane(owner)
		switch {
		case patient && now.Before(l.apart):
		case all:
			l.names = names
		default:
			l.names = append(l.names, names...)
		}
	}
}

// runLane begins to compare what waits in a lane, or forgets a lane for which there is nothing.
func (m *Mesh) runLane(owner string, l *checkLane) {
	switch {
	case l.running, m.now.Before(l.notBefore):
		return
	case len(l.names) == 0:
		if !m.now.Before(l.apart) {
			delete(m.check.lanes, owner)
		}
		return
	}
	names, began := l.names, m.now
	l.names, l.running = nil, true
	m.group.Go("edge-mesh-check", func(ctx context.Context) {
		failed := m.compare(ctx, names, owner == filtersLane)
		m.ops.Do(func() {
			l.running = false
			l.apart = m.now.Add(max(apartEvery, 4*m.now.Sub(began)))
			if len(failed) > 0 {
				l.names = append(l.names, failed...)
				l.notBefore = m.now.Add(checkRetry)
			}
		})
	})
}

// generations of filters whose topics are not all known: they will be, if these are the same once
// the heads are compared that were asked for after this. Any goroutine may call it.
func (m *Mesh) generations(ctx context.Context, filters []string) []basis {
	out := make(chan []basis, 1)
	m.ops.Do(func() {
		var known []basis
		for _, f := range filters {
			if !m.feed.IsBased(f) {
				known = append(known, basis{f, m.feed.Generation(f)})
			}
		}
		out <- known
	})
	select {
	case known := <-out:
		return known
	case <-ctx.Done():
		return nil
	}
}

// compare asks in parts, each after the one before was compared, and returns those that could not
// be answered.
func (m *Mesh) compare(ctx context.Context, names []string, filters bool) (failed []string) {
	size := topicsAtATime
	if filters {
		size = filtersAtATime
	}
	for part := range slices.Chunk(names, size) {
		c := &comparison{m: m, over: make(chan struct{})}
		var tooMany []string
		var err error
		if filters {
			c.based = m.generations(ctx, part)
			c.heads, tooMany, err = history.HeadsUnder(ctx, m.cfg.Store, part)
			c.based = slices.DeleteFunc(c.based, func(b basis) bool { return slices.Contains(tooMany, b.filter) })
		} else {
			c.heads, err = history.Heads(ctx, m.cfg.Store, part)
		}
		if err != nil {
			failed = append(failed, part...)
			m.stats.HeadErrors.Add(1)
			continue
		}
		m.ops.Do(func() { m.work.Add(c) })
		select {
		case <-c.over:
		case <-ctx.Done():
			return failed
		}
	}
	return failed
}

// comparison is what the store said to a comparison, on its way to the feed.
type comparison struct {
	m *Mesh
	giving
	based []basis
	over  chan struct{}
}

// basis is a filter whose topics are all known if it was not left by all since it had that
// generation.
type basis struct {
	filter     string
	generation uint64
}

// Step implements turns.Job.
func (c *comparison) Step() (done bool) {
	if c.step(c.m, func() { c.m.stats.Late.Add(1) }) {
		return false
	}
	for _, b := range c.based {
		c.m.feed.Based(b.filter, b.generation)
	}
	close(c.over)
	return true
}
