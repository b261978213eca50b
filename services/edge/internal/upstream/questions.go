package upstream

import (
	"maps"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/turns"
)

// holdBack is how long a question about a name holds the next one about it back at most.
const holdBack = 100 * time.Millisecond

// questions are joins that wait for heads, by what they joined. A head must be read after the join
// came, so that one which comes while its topic is being asked about needs another question. It
// waits for the end of the first: thousands that join a topic together share a few questions.
type questions struct {
	waits map[string][]interest.Wait // to be asked about
	asked map[string]*question       // names that are being asked about, and held back
	open  int                        // questions under way
	n     int                        // joins that wait for an answer
	// turns are the names in waits by who waits, where one name may take long to ask about: who
	// waits for very many does not hold up the others, and has one question under way. nil: any
	// name may be next.
	turns *turns.Fair[exchange.Conn, string]
}

// question is under way.
type question struct {
	of    *questions
	waits map[string][]interest.Wait // whom it answers
	later map[string][]interest.Wait // who came since
	// when it stops holding back: the store may take long about another topic of it
	until time.Time
	holds bool            // back
	whose []exchange.Conn // whose turn it was
}

func newQuestions() questions {
	return questions{waits: map[string][]interest.Wait{}, asked: map[string]*question{}}
}

// add has w asked about, with the next question.
func (qs *questions) add(w interest.Wait) {
	waits := qs.waits
	if q := qs.asked[w.Filter]; q != nil {
		waits = q.later
	} else if qs.turns != nil {
		qs.turns.Add(w.Conn, w.Filter)
	}
	waits[w.Filter] = append(waits[w.Filter], w)
	qs.n++
}

// take calls taken with names out of those that wait until it has taken most.
func (qs *questions) take(most int, taken func(name string, ws []interest.Wait)) (whose []exchange.Conn) {
	take := func(name string) bool {
		ws, ok := qs.waits[name]
		if ok {
			taken(name, ws)
			delete(qs.waits, name)
		}
		return ok
	}
	if qs.turns != nil {
		return qs.turns.Round(most, take)
	}
	for name := range qs.waits {
		if most--; most < 0 {
			break
		}
		take(name)
	}
	return nil
}

// ready reports whether another question may be asked.
func (qs *questions) ready() bool {
	return qs.open < asksAtATime && len(qs.waits) > 0 && (qs.turns == nil || qs.turns.Ready())
}

// release lets the next question be asked.
func (q *question) release() {
	if !q.holds {
		return
	}
	q.holds = false
	for name := range q.waits {
		if q.of.asked[name] == q {
			delete(q.of.asked, name)
		}
	}
	for name, ws := range q.later {
		q.of.waits[name] = append(q.of.waits[name], ws...)
		for i := range ws {
			if q.of.turns != nil {
				q.of.turns.Add(ws[i].Conn, name)
			}
		}
	}
	q.later = nil
}

// headQuestions are the joins that wait for heads. Those of topics are kept apart by the store that
// owns the topic's shard, "" where none does: nobody waits for an owner that is not the topic's
// own. Those of filters need every owner.
type headQuestions struct {
	topics  map[string]*questions
	filters questions
	open    []*question // under way, oldest first
}

func newHeadQuestions() headQuestions {
	h := headQuestions{topics: map[string]*questions{}, filters: newQuestions()}
	h.filters.turns = &turns.Fair[exchange.Conn, string]{}
	return h
}

// of are the joins of topics that one owner has.
func (h *headQuestions) of(owner string) *questions {
	qs := h.topics[owner]
	if qs == nil {
		one := newQuestions()
		qs = &one
		h.topics[owner] = qs
	}
	return qs
}

// forget drops the owners for which nobody waits.
func (h *headQuestions) forget() {
	maps.DeleteFunc(h.topics, func(_ string, qs *questions) bool { return qs.open+qs.n+len(qs.asked) == 0 })
}

// begin takes at most most names out of those that wait; nil where none is wanted any more.
func (h *headQuestions) begin(now time.Time, of *questions, most int) *question {
	q := &question{of: of, waits: map[string][]interest.Wait{}, later: map[string][]interest.Wait{}, until: now.Add(holdBack), holds: true}
	q.whose = of.take(most, func(name string, ws []interest.Wait) {
		q.waits[name] = ws
		of.asked[name] = q
	})
	if len(q.waits) == 0 {
		return nil
	}
	h.open = append(h.open, q)
	of.open++
	return q
}

// end is called once everybody is answered; what q holds back was let go when the store had
// answered.
func (h *headQuestions) end(q *question) {
	h.open = slices.DeleteFunc(h.open, func(o *question) bool { return o == q })
	q.of.open--
	if q.of.turns != nil {
		q.of.turns.Done(q.whose)
	}
	for _, ws := range q.waits {
		q.of.n -= len(ws)
	}
	q.release()
}

// overdue releases what questions hold back that take long.
func (h *headQuestions) overdue(now time.Time) {
	for _, q := range h.open {
		if !now.Before(q.until) {
			q.release()
		}
	}
}

// due is when overdue has something to do.
func (h *headQuestions) due() (time.Time, bool) {
	for _, q := range h.open {
		if len(q.later) > 0 {
			return q.until, true
		}
	}
	return time.Time{}, false
}

func names(waits map[string][]interest.Wait) []string {
	out := make([]string, 0, len(waits))
	for name := range waits {
		out = append(out, name)
	}
	return out
}
