package mesh

import (
	"context"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/history"
)

// checkRetry is the pause after the store could not answer.
const checkRetry = 500 * time.Millisecond

// While what routers send may not come, because there is no NATS, no router, or one fell silent within doubtFor and may go on storing
// messages without being heard, heads are compared every apartEvery; seldom enough, though, that a fifth of the time goes into it at most.
const (
	apartEvery = time.Second
	doubtFor   = 10 * time.Second
)

// check compares the heads of durable topics with the store. One runs at a time; reasons that come meanwhile have another follow, because
// the heads may have been read before.
type check struct {
	all       bool
	topics    map[string]bool
	reasons   map[string]bool
	running   bool
	notBefore time.Time
	next      time.Time // the backstop
	apart     time.Time // not again for that reason before
	doubt     time.Time // until then a router that fell silent may be storing messages
}

// apart says that messages may be stored of which no router can tell this edge.
func (m *Mesh) apart() bool {
	return !m.cfg.Bus.Connected() || m.routers.Len() == 0 && !m.unheard() || m.now.Before(m.check.doubt)
}

// checkAll has every durable topic compared.
func (m *Mesh) checkAll(reason string) {
	m.check.all = true
	m.check.reasons[reason] = true
}

// checkSome has some topics compared.
func (m *Mesh) checkSome(reason string, topics []string) {
	for _, t := range topics {
		if m.feed.Wanted(t) {
			m.check.topics[t] = true
			m.check.reasons[reason] = true
		}
	}
}

func (c *check) wanted() bool { return c.all || len(c.topics) > 0 }

// round is what one check asks for.
type round struct {
	all             bool
	topics, filters []string
	reasons         map[string]bool
	failed          bool
	began           time.Time
}

// runCheck begins a check that is wanted.
func (m *Mesh) runCheck() {
	c := &m.check
	if c.running || !c.wanted() || m.now.Before(c.notBefore) {
		return
	}
	r := &round{all: c.all, reasons: c.reasons, began: m.now}
	if c.all {
		r.topics = m.feed.Topics()
		r.filters = slices.DeleteFunc(m.feed.Filters(), func(f string) bool { return !m.feed.IsBased(f) && !m.cfg.DurableAny(f) })
		c.next = m.now.Add(m.cfg.BackstopEvery)
	} else {
		r.topics = make([]string, 0, len(c.topics))
		for t := range c.topics {
			r.topics = append(r.topics, t)
		}
	}
	c.all, c.running = false, true
	c.topics, c.reasons = map[string]bool{}, map[string]bool{}
	for reason := range r.reasons {
		m.stats.check(reason)
	}
	m.group.Go("edge-mesh-check", func(ctx context.Context) {
		m.compare(ctx, r)
		m.ops.Do(func() { m.checked(r) })
	})
}

// compare asks in parts; what can't be answered is asked for again later.
func (m *Mesh) compare(ctx context.Context, r *round) {
	for part := range slices.Chunk(r.topics, topicsAtATime) {
		heads, err := history.Heads(ctx, m.cfg.Store, part)
		m.ops.Do(func() { m.compared(r, part, heads, err) })
	}
	for part := range slices.Chunk(r.filters, filtersAtATime) {
		heads, tooMany, err := history.HeadsUnder(ctx, m.cfg.Store, part)
		m.ops.Do(func() {
			m.compared(r, nil, heads, err)
			if err == nil {
				m.based(part, tooMany)
			}
		})
	}
}

func (m *Mesh) compared(r *round, part []string, heads []exchange.Head, err error) {
	if err != nil {
		m.stats.HeadErrors.Add(1)
		r.failed = true
		if !r.all {
			for _, t := range part {
				m.check.topics[t] = true
			}
		}
		return
	}
	for _, h := range heads {
		if m.feed.Head(m.now, h) {
			m.stats.Late.Add(1)
		}
	}
}

// based notes that the topics of filters are all known now, where they were not when these were joined.
func (m *Mesh) based(filters, tooMany []string) {
	for _, f := range filters {
		if !m.feed.IsBased(f) && !slices.Contains(tooMany, f) {
			m.feed.Based(f)
		}
	}
}

func (m *Mesh) checked(r *round) {
	c := &m.check
	c.running = false
	c.apart = m.now.Add(max(apartEvery, 4*m.now.Sub(r.began)))
	if !r.failed {
		return
	}
	c.notBefore = m.now.Add(checkRetry)
	c.all = c.all || r.all
	for reason := range r.reasons {
		c.reasons[reason] = true
	}
}
