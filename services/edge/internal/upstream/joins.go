package upstream

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
)

// After a connection to NATS routers may exist that were not heard yet: they beat every 500 ms, and
// at once after applying an announcement, so that the others are heard soon after the first.
const (
	routerGrace = 700 * time.Millisecond
	othersGrace = 150 * time.Millisecond
)

// connected begins to wait for routers to be heard.
func (m *Mesh) connected() {
	m.graceUntil, m.othersUntil = m.now.Add(routerGrace), m.now.Add(othersGrace)
}

// unheard says that routers may exist that were not heard yet.
func (m *Mesh) unheard() bool {
	return m.now.Before(m.othersUntil) || m.routers.Len() == 0 && m.now.Before(m.graceUntil)
}

// Sizes of a question about heads, and how many of them are asked at a time because of joins: of
// one owner, and of filters.
const (
	topicsAtATime  = 4096
	filtersAtATime = 256
	asksAtATime    = 4
)

// joinsOfOneOwner is how many joins may wait for one owner, so that there is room for those of
// others.
const joinsOfOneOwner = joinsWaiting / 2

// laggingMost bounds the filters kept of joins that were answered late.
const laggingMost = 65_536

// Join says that a subscription of a loop wants filter.
func (m *Mesh) Join(conn exchange.Conn, sub uint32, filter string, heads bool, limit int) {
	w := interest.Wait{Conn: conn, Sub: sub, Filter: filter, Heads: heads, Limit: limit}
	refused := m.waiting.Add(1) > joinsWaiting
	m.ops.Do(func() {
		// It is counted even where it is refused: its Leave comes.
		if m.table.Join(m.now, int(conn.Loop), filter) {
			m.feed.Add(int(conn.Loop), filter)
		}
		if refused {
			m.stats.RefusedJoins.Add(1)
			m.answer(w, nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many subscriptions are being made"))
			return
		}
		m.admit(w)
	})
}

// Leave ends one Join.
func (m *Mesh) Leave(loop uint16, filter string) {
	m.ops.Do(func() {
		if m.table.Leave(m.now, int(loop), filter) {
			m.feed.Remove(int(loop), filter)
		}
	})
}

// admit passes a join on, or has it wait for routers.
func (m *Mesh) admit(w interest.Wait) {
	version := m.table.Announced(w.Filter)
	applied, live := m.routers.Applied()
	switch {
	case !m.cfg.Bus.Connected(), !live && !m.unheard():
		m.stats.WithoutRouter.Add(1)
		m.pass(w)
	case version == 0:
		m.unannounced = append(m.unannounced, w)
	case !m.unheard() && applied >= version:
		m.pass(w)
	default:
		m.gate.Add(m.now, version, w)
	}
}

// openGate passes on the joins that every live router has applied.
func (m *Mesh) openGate() {
	m.caughtUp()
	if m.gate.Len() == 0 {
		return
	}
	applied, live := m.routers.Applied()
	if m.unheard() && m.cfg.Bus.Connected() {
		return
	}
	out := m.gate.Applied(applied) // everything where no router is left
	if !live {
		m.stats.WithoutRouter.Add(uint64(len(out)))
	}
	for _, w := range out {
		m.pass(w)
	}
}

// late passes on the joins that routers took too long for.
func (m *Mesh) late() {
	for _, w := range m.gate.Late(m.now) {
		version := m.table.Announced(w.Filter)
		m.stats.Laggards.Add(uint64(max(m.routers.Laggards(version), 1)))
		m.lagging = append(m.lagging, lag{version, w.Filter})
		m.pass(w)
	}
}

// lag is a filter whose join was answered before every live router had applied the version that
// announced it: what such a router routed meanwhile did not come here.
type lag struct {
	version uint64
	filter  string
}

// caughtUp has the topics of late filters compared, once every live router has applied their
// versions.
func (m *Mesh) caughtUp() {
	applied, _ := m.routers.Applied()
	for len(m.lagging) > 0 && m.lagging[0].version <= applied {
		if f := m.lagging[0].filter; topic.IsFilter(f) {
			m.checkAll("laggard")
		} else {
			m.checkSome("laggard", []string{f})
		}
		m.lagging = m.lagging[1:]
	}
	if len(m.lagging) > laggingMost { // the backstop finds the others
		m.lagging = m.lagging[len(m.lagging)-laggingMost:]
	}
}

// pass answers a join whose interest is known to routers, or has heads read for it first. The feed
// needs these too, once for a topic or filter.
func (m *Mesh) pass(w interest.Wait) {
	switch {
	case topic.IsFilter(w.Filter):
		if !m.cfg.DurableAny(w.Filter) || !w.Heads && m.feed.IsBased(w.Filter) {
			m.answer(w, nil, nil)
			return
		}
		m.joins.filters.add(w)
	case !m.cfg.Durable(w.Filter), !w.Heads && m.feed.Known(w.Filter):
		m.answer(w, nil, nil)
	default:
		qs := m.joins.of(m.ownerOf(w.Filter))
		if qs.n >= joinsOfOneOwner {
			m.stats.RefusedJoins.Add(1)
			m.answer(w, nil, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many subscriptions wait for the store that owns the topic"))
			return
		}
		m.feed.Expect(w.Filter)
		qs.add(w)
	}
}

// ownerOf is the store that owns a topic's shard, as far as is known; "" where none does.
func (m *Mesh) ownerOf(name string) string { return m.cfg.Store.OwnerOf(topic.Shard(name)) }

func (m *Mesh) answer(w interest.Wait, heads []exchange.Head, err error) {
	m.waiting.Add(-1)
	if err != nil {
		m.stats.FailedJoins.Add(1)
	}
	m.Post(w.Conn.Loop, exchange.Joined{Conn: w.Conn, Sub: w.Sub, Heads: heads, Err: err})
}

// askHeads asks the stores for those who wait, as long as few questions of an owner are under way:
// whoever comes meanwhile is asked for together.
func (m *Mesh) askHeads() {
	m.joins.overdue(m.now)
	for _, qs := range m.joins.topics {
		for qs.open < asksAtATime && len(qs.waits) > 0 {
			m.askTopics(m.joins.begin(m.now, qs, topicsAtATime))
		}
	}
	m.joins.forget()
	for qs := &m.joins.filters; qs.open < asksAtATime && len(qs.waits) > 0; {
		m.askFilters(m.joins.begin(m.now, qs, filtersAtATime))
	}
}

// ask runs f, which may block, beside the mesh's goroutine, and then in it what f returns: the
// answer to q.
func (m *Mesh) ask(q *question, f func(ctx context.Context) func()) {
	m.group.Go("edge-mesh-heads", func(ctx context.Context) {
		then := f(ctx)
		m.ops.Do(func() {
			m.joins.end(q)
			then()
		})
	})
}

func (m *Mesh) askTopics(q *question) {
	topics := names(q.waits)
	m.ask(q, func(ctx context.Context) func() {
		heads, err := history.Heads(ctx, m.cfg.Store, topics)
		return func() { m.topicsAnswered(q.waits, heads, err) }
	})
}

func (m *Mesh) topicsAnswered(waits map[string][]interest.Wait, heads []exchange.Head, err error) {
	for _, h := range heads {
		m.feed.Head(m.now, h)
	}
	for t, ws := range waits {
		for range ws {
			m.feed.Expected(t)
		}
	}
	m.handOn() // what the heads set free comes before the answers: these tell of it
	byTopic := make(map[string]exchange.Head, len(heads))
	for _, h := range heads {
		byTopic[h.Topic] = m.feed.AheadHead(h)
	}
	for t, ws := range waits {
		h, ok := byTopic[t]
		why := err
		if !ok && why == nil {
			why = code.New(wirev1.Code_CODE_INTERNAL, "the store did not answer for the topic")
		}
		for _, w := range ws {
			m.answerHeads(w, []exchange.Head{h}, why)
		}
	}
	if err != nil {
		m.stats.HeadErrors.Add(1)
		m.checkSome("unknown", names(waits))
	}
}

// answerHeads answers a join for which heads were read. One that did not ask for them does not fail
// with them.
func (m *Mesh) answerHeads(w interest.Wait, heads []exchange.Head, err error) {
	switch {
	case !w.Heads:
		m.answer(w, nil, nil)
	case err != nil:
		m.answer(w, nil, err)
	default:
		m.answer(w, heads, nil)
	}
}

func (m *Mesh) askFilters(q *question) {
	filters := names(q.waits)
	m.feed.Basing()
	m.ask(q, func(ctx context.Context) func() {
		heads, tooMany, err := history.HeadsUnder(ctx, m.cfg.Store, filters)
		return func() { m.filtersAnswered(q.waits, heads, tooMany, err) }
	})
}

func (m *Mesh) filtersAnswered(waits map[string][]interest.Wait, heads []exchange.Head, tooMany []string, err error) {
	for _, h := range heads {
		m.feed.Head(m.now, h)
	}
	large := map[string]bool{}
	for _, f := range tooMany {
		large[f] = true
	}
	m.feed.BasingDone()
	for f := range waits {
		if err == nil && !large[f] {
			m.feed.Based(f)
		}
	}
	m.handOn()
	matching := m.byFilter(waits, heads)
	for f, ws := range waits {
		for _, w := range ws {
			switch n := len(matching[f]); {
			case err != nil:
				m.answerHeads(w, nil, err)
			case large[f], w.Limit > 0 && n > w.Limit:
				m.answerHeads(w, nil, code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "the filter matches too many topics"))
			default:
				m.answerHeads(w, matching[f], nil)
			}
		}
	}
	m.stats.LargeFilters.Add(uint64(len(tooMany)))
	if err != nil {
		m.stats.HeadErrors.Add(1)
		m.checkAll("unknown")
	}
}

// byFilter sorts heads by the filters that wait for them.
func (m *Mesh) byFilter(waits map[string][]interest.Wait, heads []exchange.Head) map[string][]exchange.Head {
	var index topic.Index[string]
	for f, ws := range waits {
		for _, w := range ws {
			if w.Heads {
				index.Add(f, f)
				break
			}
		}
	}
	out := map[string][]exchange.Head{}
	if index.Len() == 0 {
		return out
	}
	var scratch []string
	seen := map[string]bool{}
	for _, h := range heads {
		if seen[h.Topic] { // several questions may have been answered with it
			continue
		}
		seen[h.Topic] = true
		scratch = index.Match(scratch[:0], h.Topic)
		for _, f := range scratch {
			out[f] = append(out[f], m.feed.AheadHead(h))
		}
	}
	return out
}
