package upstream

import (
	"context"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/survey"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/turns"
)

// Sizes of a question about heads, and how many of them are asked at a time because of joins: of
// one owner, and of filters. Those who join filters rarely have two questions at a time whoever
// else asks, and all four while nobody else does.
const (
	topicsAtATime   = 4096
	filtersAtATime  = 256
	asksAtATime     = 4
	rareAsksAtATime = 2
)

// Of an answer, what is dealt with in one step: about 50 µs.
const (
	headsOfStep   = 64
	answersOfStep = 64
)

// askHeads asks the stores for those who wait, as long as few questions of an owner are under way:
// whoever comes meanwhile is asked for together.
func (m *Mesh) askHeads() {
	m.joins.heads.overdue(m.now)
	for _, qs := range m.joins.heads.topics {
		for qs.ready() {
			if q := m.joins.heads.begin(m.now, qs, topicsAtATime); q != nil {
				m.askTopics(q)
			}
		}
	}
	m.joins.heads.forget()
	for qs := &m.joins.heads.filters; qs.ready(); {
		if q := m.joins.heads.begin(m.now, qs, filtersAtATime); q != nil {
			m.askFilters(q)
		}
	}
}

// ask runs f, which may block, beside the mesh's goroutine, and then the job that f returns in it:
// to answer q.
func (m *Mesh) ask(q *question, f func(ctx context.Context) turns.Job) {
	m.group.Go("edge-mesh-heads", func(ctx context.Context) {
		job := f(ctx)
		m.ops.Do(func() {
			q.release()
			m.work.Add(job)
		})
	})
}

// giving gives heads to the feed.
type giving struct {
	heads []exchange.Head
	given int
}

// step gives some of them, and reports whether there were any.
func (g *giving) step(m *Mesh, late func()) bool {
	some := g.heads[g.given:min(g.given+headsOfStep, len(g.heads))]
	for _, h := range some {
		if m.feed.Head(m.now, h) {
			late()
		}
	}
	g.given += len(some)
	return len(some) > 0
}

// answering goes through those who wait for a question.
type answering struct {
	m    *Mesh
	q    *question
	told int // of those who wait for the name at hand
}

// some answers some of those who wait for a name, and reports whether there are more.
func (a *answering) some(name string, answer func(interest.Wait)) (more bool) {
	ws := a.q.waits[name]
	end := min(a.told+answersOfStep, len(ws))
	for _, w := range ws[a.told:end] {
		answer(w)
	}
	if a.told = end; end < len(ws) {
		return true
	}
	a.told = 0
	return false
}

// topicsAnswer is the answer to a question about topics.
type topicsAnswer struct {
	answering
	giving
	names []string // not answered yet
	heads map[string]exchange.Head
	err   error
}

func (m *Mesh) askTopics(q *question) {
	a := &topicsAnswer{answering: answering{m: m, q: q}, names: names(q.waits), heads: map[string]exchange.Head{}}
	m.ask(q, func(ctx context.Context) turns.Job {
		a.giving.heads, a.err = history.Heads(ctx, m.cfg.Store, a.names)
		for _, h := range a.giving.heads {
			a.heads[h.Topic] = h
		}
		return a
	})
}

// Step implements turns.Job.
func (a *topicsAnswer) Step() (done bool) {
	m := a.m
	switch {
	case a.giving.step(m, func() {}):
		return false
	case len(a.names) > 0:
		m.handOn() // what the heads set free comes before the answers: these tell of it
		for n := 0; n < answersOfStep && len(a.names) > 0; n += answersOfStep / 16 {
			if a.answer(a.names[0]) {
				continue
			}
			if a.err != nil {
				m.checkSome("unknown", a.names[:1])
			}
			a.names = a.names[1:]
		}
		return false
	}
	m.joins.heads.end(a.q)
	if a.err != nil {
		m.stats.HeadErrors.Add(1)
	}
	return true
}

// answer answers some of those who wait for a topic, and reports whether there are more.
func (a *topicsAnswer) answer(name string) (more bool) {
	h, ok := a.heads[name]
	why := a.err
	if !ok && why == nil {
		why = code.New(wirev1.Code_CODE_INTERNAL, "the store did not answer for the topic")
	}
	h = a.m.feed.AheadHead(h)
	return a.some(name, func(w interest.Wait) {
		a.m.feed.Expected(name)
		a.m.answerHeads(w, []exchange.Head{h}, why)
	})
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

// filtersAnswer is the answer to a question about filters.
type filtersAnswer struct {
	answering
	*survey.Survey
	err error
}

func (m *Mesh) askFilters(q *question) {
	asked := make([]survey.Asked, 0, len(q.waits))
	for filter, ws := range q.waits {
		asked = append(asked, askedBy(filter, ws))
	}
	a := &filtersAnswer{answering: answering{m: m, q: q}, Survey: survey.Begin(m.feed, asked)}
	m.ask(q, func(ctx context.Context) turns.Job {
		heads, tooMany, err := history.HeadsUnder(ctx, m.cfg.Store, names(q.waits))
		a.Take(heads, tooMany, err)
		a.err = err
		m.stats.LargeFilters.Add(uint64(len(tooMany)))
		return a
	})
}

// askedBy is what those who wait for a filter need, all together.
func askedBy(filter string, ws []interest.Wait) survey.Asked {
	a := survey.Asked{Filter: filter}
	unlimited := false
	for _, w := range ws {
		if w.Heads {
			a.Heads, a.Limit, unlimited = true, max(a.Limit, w.Limit), unlimited || w.Limit == 0
		}
	}
	if unlimited {
		a.Limit = 0
	}
	return a
}

// Step implements turns.Job.
func (a *filtersAnswer) Step() (done bool) {
	m := a.m
	if !a.Survey.Step(m.now, m.handOn, a.answer) {
		return false
	}
	m.joins.heads.end(a.q)
	if a.err != nil {
		m.stats.HeadErrors.Add(1)
		m.checkAll("unknown")
	}
	return true
}

func (a *filtersAnswer) answer(filter string, heads []exchange.Head, err error) (more bool) {
	return a.some(filter, func(w interest.Wait) {
		if why := err; why == nil && w.Limit > 0 && len(heads) > w.Limit {
			a.m.answerHeads(w, nil, survey.TooManyTopics)
		} else {
			a.m.answerHeads(w, heads, why)
		}
	})
}
