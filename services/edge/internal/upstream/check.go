package upstream

import (
	"context"
	"maps"
	"slices"
	"time"

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

func (c *check) addTopic(reason, topic string) {
	c.topics[topic] = true
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

// split sorts what is to be compared by owner, beside the mesh's goroutine: there may be very many.
func (m *Mesh) split() {
	c := &m.check
	all, patient := c.all, len(c.reasons) == 1 && c.reasons[onlyApart]
	var topics, filters []string
	if all {
		topics = m.feed.Topics()
		filters = slices.DeleteFunc(m.feed.Filters(), func(f string) bool { return !m.feed.IsBased(f) && !m.cfg.DurableAny(f) })
		c.next = m.now.Add(m.cfg.BackstopEvery)
	} else {
		topics = slices.Collect(maps.Keys(c.topics))
	}
	for reason := range c.reasons {
		m.stats.check(reason)
	}
	c.all, c.splitting = false, true
	c.topics, c.reasons = map[string]bool{}, map[string]bool{}
	began := m.now
	m.group.Go("edge-mesh-check", func(context.Context) {
		parts := map[string][]string{}
		for _, t := range topics {
			owner := m.ownerOf(t)
			parts[owner] = append(parts[owner], t)
		}
		if len(filters) > 0 {
			parts[filtersLane] = filters
		}
		m.ops.Do(func() {
			c.splitting = false
			c.apart = m.now.Add(max(apartEvery, 4*m.now.Sub(began)))
			c.handOut(m.now, parts, all, patient)
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
	var generations map[string]uint64
	if owner == filtersLane {
		generations = m.generations(names)
	}
	m.group.Go("edge-mesh-check", func(ctx context.Context) {
		failed := m.compare(ctx, names, generations)
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

// generations of filters whose topics are not all known: they will be, if these are the same then.
func (m *Mesh) generations(filters []string) map[string]uint64 {
	out := map[string]uint64{}
	for _, f := range filters {
		if !m.feed.IsBased(f) {
			out[f] = m.feed.Generation(f)
		}
	}
	return out
}

// compare asks in parts, each after the one before was compared, and returns those that could not
// be answered. generations are nil for topics.
func (m *Mesh) compare(ctx context.Context, names []string, generations map[string]uint64) (failed []string) {
	size := topicsAtATime
	if generations != nil {
		size = filtersAtATime
	}
	for part := range slices.Chunk(names, size) {
		c := &comparison{m: m, over: make(chan struct{})}
		var tooMany []string
		var err error
		if generations != nil {
			c.heads, tooMany, err = history.HeadsUnder(ctx, m.cfg.Store, part)
		} else {
			c.heads, err = history.Heads(ctx, m.cfg.Store, part)
		}
		if err != nil {
			failed = append(failed, part...)
			m.stats.HeadErrors.Add(1)
			continue
		}
		for _, f := range part {
			if gen, ok := generations[f]; ok && !slices.Contains(tooMany, f) {
				c.based = append(c.based, basis{f, gen})
			}
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
