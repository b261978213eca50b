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
	// turns say which names are next, where one may take long to ask about; nil: any may be.
	turns *nameTurns
}

// nameTurns are names that wait by who waits for them: who waits for very many does not hold up the
// others, and has one question under way. Who asks rarely is asked for by questions of their own:
// those who ask again and again hold up themselves.
type nameTurns struct {
	asking      turns.Rare[exchange.Conn]
	often, rare turns.Fair[exchange.Conn, string]
	of          map[string][]nameTurn
	openRare    int // questions of those who ask rarely
}

// nameTurn is a name's place in the turns of one who waits for it.
type nameTurn struct {
	conn   exchange.Conn
	rarely bool
	at     *turns.Value[exchange.Conn, string] // nil: the name is being asked about
}

// turnsOfName is how many of those who wait for one name have a turn of it, and as many of those
// who ask rarely: the name is asked about when the first of these is next, however many wait.
const turnsOfName = 8

// with adds who came for a name to those who have a turn of it, unless there are enough.
func with(ts []nameTurn, one nameTurn) []nameTurn {
	n := 0
	for i := range ts {
		if ts[i].rarely == one.rarely {
			if n++; n == turnsOfName || ts[i].conn == one.conn {
				return ts
			}
		}
	}
	return append(ts, one)
}

// asks is the turn of one who comes for a name.
func (t *nameTurns) asks(now time.Time, conn exchange.Conn) nameTurn {
	return nameTurn{conn: conn, rarely: t.asking.Ask(now, conn)}
}

// add has a name asked about in one more turn, unless it has enough.
func (t *nameTurns) add(name string, one nameTurn) {
	before := t.of[name]
	after := with(before, one)
	if len(after) > len(before) {
		after[len(before)].at = t.in(one.rarely).Add(one.conn, name)
		t.of[name] = after
	}
}

// in are the turns of those who ask rarely, or often.
func (t *nameTurns) in(rarely bool) *turns.Fair[exchange.Conn, string] {
	if rarely {
		return &t.rare
	}
	return &t.often
}

// drop lets go of a name that is being asked about.
func (t *nameTurns) drop(name string) {
	for _, one := range t.of[name] {
		t.in(one.rarely).Drop(one.at)
	}
	delete(t.of, name)
}

// next is whose turn it is while so many questions are open; nil: nobody's. Who asks rarely also
// has the questions that nobody else wants.
func (t *nameTurns) next(open int) *turns.Fair[exchange.Conn, string] {
	switch {
	case t.rare.Ready() && t.openRare < rareAsksAtATime:
		return &t.rare
	case t.often.Ready() && open-t.openRare < asksAtATime && open < asksAtATime+rareAsksAtATime:
		return &t.often
	case t.rare.Ready() && open < asksAtATime:
		return &t.rare
	}
	return nil
}

// question is under way.
type question struct {
	of    *questions
	waits map[string][]interest.Wait // whom it answers
	later map[string][]interest.Wait // who came since
	turns map[string][]nameTurn      // of these, once the next question may be asked
	// when it stops holding back: the store may take long about another topic of it
	until time.Time
	holds bool            // back
	whose []exchange.Conn // whose turn it was, in
	in    *turns.Fair[exchange.Conn, string]
}

func newQuestions() questions {
	return questions{waits: map[string][]interest.Wait{}, asked: map[string]*question{}}
}

// add has w asked about, with the next question.
func (qs *questions) add(now time.Time, w interest.Wait) {
	waits := qs.waits
	q := qs.asked[w.Filter]
	if q != nil {
		waits = q.later
	}
	switch {
	case qs.turns == nil:
	case q != nil:
		q.turns[w.Filter] = with(q.turns[w.Filter], qs.turns.asks(now, w.Conn))
	default:
		qs.turns.add(w.Filter, qs.turns.asks(now, w.Conn))
	}
	waits[w.Filter] = append(waits[w.Filter], w)
	qs.n++
}

// take calls taken with names out of those that wait until it has taken most.
func (qs *questions) take(q *question, most int, taken func(name string, ws []interest.Wait)) {
	take := func(name string) {
		taken(name, qs.waits[name])
		delete(qs.waits, name)
	}
	if qs.turns == nil {
		for name := range qs.waits {
			if most--; most < 0 {
				break
			}
			take(name)
		}
		return
	}
	if q.in = qs.turns.next(qs.open); q.in == nil {
		return
	}
	q.whose = q.in.Round(most, func(name string) {
		take(name)
		qs.turns.drop(name)
	})
	if q.in == &qs.turns.rare {
		qs.turns.openRare++
	}
}

// ready reports whether another question may be asked.
func (qs *questions) ready() bool {
	if qs.turns != nil {
		return qs.turns.next(qs.open) != nil
	}
	return qs.open < asksAtATime && len(qs.waits) > 0
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
	// What this costs grows with the names, and not with who waits: nobody else waits for them.
	maps.Copy(q.of.waits, q.later)
	for name, ts := range q.turns {
		for _, one := range ts {
			q.of.turns.add(name, one)
		}
	}
	q.later, q.turns = nil, nil
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
	h.filters.turns = &nameTurns{of: map[string][]nameTurn{}}
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
	q := &question{of: of, waits: make(map[string][]interest.Wait, min(most, len(of.waits))), later: map[string][]interest.Wait{}, turns: map[string][]nameTurn{}, until: now.Add(holdBack), holds: true}
	of.take(q, most, func(name string, ws []interest.Wait) {
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
	if t := q.of.turns; t != nil {
		q.in.Done(q.whose)
		if q.in == &t.rare {
			t.openRare--
		}
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
