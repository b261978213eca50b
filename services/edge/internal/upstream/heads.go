package upstream

import (
	"context"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
)

// Sizes of a question about heads, and how many of them are asked at a time because of joins: of
// one owner, and of filters.
const (
	topicsAtATime  = 4096
	filtersAtATime = 256
	asksAtATime    = 4
)

// askHeads asks the stores for those who wait, as long as few questions of an owner are under way:
// whoever comes meanwhile is asked for together.
func (m *Mesh) askHeads() {
	m.joins.heads.overdue(m.now)
	for _, qs := range m.joins.heads.topics {
		for qs.open < asksAtATime && len(qs.waits) > 0 {
			m.askTopics(m.joins.heads.begin(m.now, qs, topicsAtATime))
		}
	}
	m.joins.heads.forget()
	for qs := &m.joins.heads.filters; qs.open < asksAtATime && len(qs.waits) > 0; {
		m.askFilters(m.joins.heads.begin(m.now, qs, filtersAtATime))
	}
}

// ask runs f, which may block, beside the mesh's goroutine, and then in it what f returns: the
// answer to q.
func (m *Mesh) ask(q *question, f func(ctx context.Context) func()) {
	m.group.Go("edge-mesh-heads", func(ctx context.Context) {
		then := f(ctx)
		m.ops.Do(func() {
			m.joins.heads.end(q)
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
