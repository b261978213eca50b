package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
)

// subs of the joins of a question, in order.
func subs(q *question, name string) (all []uint32) {
	for _, w := range q.waits[name] {
		all = append(all, w.Sub)
	}
	return all
}

func TestJoinsOfATopicShareQuestions(t *testing.T) {
	j := newHeadQuestions()
	now := time.Now()
	for sub := range uint32(3) {
		j.of("s1").add(now, interest.Wait{Filter: "a", Sub: sub})
	}
	first := j.begin(now, j.of("s1"), 10)
	j.of("s1").add(now, interest.Wait{Filter: "a", Sub: 3})
	j.of("s1").add(now, interest.Wait{Filter: "b", Sub: 4})
	j.of("s1").add(now, interest.Wait{Filter: "a", Sub: 5})
	if got := subs(first, "a"); !slices.Equal(got, []uint32{0, 1, 2}) {
		t.Fatalf("the first question is of %v", got)
	}
	other := j.begin(now, j.of("s1"), 10)
	if got := names(other.waits); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("asked about %v while a is being asked about", got)
	}
	j.end(other)
	if len(j.of("s1").waits) != 0 {
		t.Fatalf("the end of one question let go of another's: %v", j.of("s1").waits)
	}
	j.end(first)
	if got := subs(j.begin(now, j.of("s1"), 10), "a"); !slices.Equal(got, []uint32{3, 5}) {
		t.Fatalf("the next question is of %v", got)
	}
}

func TestAQuestionThatTakesLongHoldsNobodyBack(t *testing.T) {
	j := newHeadQuestions()
	now := time.Now()
	j.of("s1").add(now, interest.Wait{Filter: "a"})
	slow := j.begin(now, j.of("s1"), 10)
	if _, ok := j.due(); ok {
		t.Fatal("something is due for nobody")
	}
	j.of("s1").add(now, interest.Wait{Filter: "a", Sub: 1})
	at, ok := j.due()
	if !ok || !at.Equal(now.Add(holdBack)) {
		t.Fatalf("due %v, %v", at, ok)
	}
	j.overdue(at.Add(-1))
	if len(j.of("s1").waits) != 0 {
		t.Fatal("released too early")
	}
	j.overdue(at)
	if _, ok := j.due(); ok {
		t.Fatal("due after the release")
	}
	second := j.begin(at, j.of("s1"), 10)
	if got := subs(second, "a"); !slices.Equal(got, []uint32{1}) {
		t.Fatalf("the second question is of %v", got)
	}
	j.of("s1").add(now, interest.Wait{Filter: "a", Sub: 2})
	j.end(slow) // which holds nothing back any more, and so lets nothing go
	if len(j.of("s1").waits) != 0 {
		t.Fatal("the end of the first let go of what the second holds back")
	}
	j.end(second)
	if len(j.of("s1").waits["a"]) != 1 || len(j.open) != 0 || len(j.of("s1").asked) != 0 {
		t.Fatalf("left: %+v", j)
	}
}

// asksOften has connections be known to ask again and again.
func (h *headQuestions) asksOften(now time.Time, conns ...exchange.Conn) {
	for _, c := range conns {
		for h.filters.turns.asking.Ask(now, c) {
		}
	}
}

// left is what is kept of joins.
func (qs *questions) left() int {
	return qs.n + qs.open + len(qs.waits) + len(qs.asked) + qs.turns.openRare + len(qs.turns.of) + qs.turns.often.Len() + qs.turns.rare.Len()
}

// One who joins very many filters has one question of them under way, and others' filters are in
// the next one.
func TestWhoJoinsOneFilterComesInBetween(t *testing.T) {
	j, now := newHeadQuestions(), time.Now()
	for n := range uint32(10) {
		j.asksOften(now, conn(0, n))
	}
	for i := range 1000 {
		j.filters.add(now, interest.Wait{Conn: conn(0, 1), Filter: fmt.Sprint("a/+/", i)})
	}
	many := j.begin(now, &j.filters, filtersAtATime)
	if len(many.waits) != filtersAtATime || j.filters.ready() {
		t.Fatalf("%d filters are asked about, and more could be", len(many.waits))
	}
	j.filters.add(now, interest.Wait{Conn: conn(0, 2), Filter: "a/+/999"}) // which waits already
	j.filters.add(now, interest.Wait{Conn: conn(0, 3), Filter: "b/+"})
	one := j.begin(now, &j.filters, filtersAtATime)
	if got := names(one.waits); len(got) != 2 || len(one.waits["a/+/999"]) != 2 || len(one.waits["b/+"]) != 1 {
		t.Fatalf("asked about %v", got)
	}
	for n := range 10 { // those who are asked for now wait for the end of it
		j.filters.add(now, interest.Wait{Conn: conn(0, uint32(n)), Filter: "b/+"})
	}
	j.end(one)
	next := j.begin(now, &j.filters, filtersAtATime)
	if got := names(next.waits); len(got) != 1 || len(next.waits["b/+"]) != 10 {
		t.Fatalf("asked about %v", got)
	}
	for _, q := range []*question{next, many} {
		j.end(q)
	}
	for asked := 0; asked < 1000-1-filtersAtATime; {
		q := j.begin(now, &j.filters, filtersAtATime)
		if q == nil {
			t.Fatalf("%d of them are forgotten", len(j.filters.waits))
		}
		asked += len(q.waits)
		j.end(q)
	}
	if j.filters.left()+len(j.open) > 0 || j.filters.ready() {
		t.Errorf("left: %+v", j.filters)
	}
}

// However many ask again and again, and however long the questions of theirs take: who asks rarely
// is asked for at once, and by a question that holds nothing of theirs, unless others who ask
// rarely have as many questions as these may. Everybody is answered once, and nothing is kept.
func TestWhoAsksRarelyIsAskedForAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, now := newHeadQuestions(), time.Now()
		qs := &j.filters
		var under []*question
		var came, answered uint32
		rare := map[uint32]bool{} // joins
		ask := func() {
			for qs.ready() {
				q := j.begin(now, qs, rapid.IntRange(1, 5).Draw(t, "most"))
				if q == nil {
					t.Fatal("a question is ready and is none")
				}
				under = append(under, q)
				for name, ws := range q.waits {
					if (q.in == &qs.turns.rare) != slices.ContainsFunc(ws, func(w interest.Wait) bool { return rare[w.Sub] }) {
						t.Fatalf("%s is in the wrong question", name)
					}
				}
			}
			for name, ws := range qs.waits {
				if slices.ContainsFunc(ws, func(w interest.Wait) bool { return rare[w.Sub] }) && qs.turns.openRare < rareAsksAtATime {
					t.Fatalf("%s waits, and %d questions of those who ask rarely are under way", name, qs.turns.openRare)
				}
			}
			if often := len(under) - qs.turns.openRare; often > asksAtATime || len(under) > asksAtATime+rareAsksAtATime {
				t.Fatalf("%d questions are under way, %d of those who ask often", len(under), often)
			}
		}
		end := func(i int) {
			q := under[i]
			under = slices.Delete(under, i, i+1)
			for _, ws := range q.waits {
				answered += uint32(len(ws))
			}
			j.end(q)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"often", "often", "often", "rare", "end", "time"}).Draw(t, "step") {
			case "often":
				c := conn(0, rapid.Uint32Range(1, 9).Draw(t, "who"))
				j.asksOften(now, c)
				came++
				qs.add(now, interest.Wait{Conn: c, Sub: came, Filter: fmt.Sprint("often/+/", rapid.IntRange(1, 30).Draw(t, "name"))})
			case "rare":
				came++
				rare[came] = true
				name := fmt.Sprint("rare/+/", rapid.IntRange(1, 3).Draw(t, "name"))
				qs.add(now, interest.Wait{Conn: conn(0, 100+came), Sub: came, Filter: name})
				busy, shared := qs.turns.openRare, qs.asked[name] != nil
				ask()
				if busy < rareAsksAtATime && !shared && qs.asked[name] == nil {
					t.Fatalf("%s is not asked about, while %d questions of those who ask rarely are under way", name, busy)
				}
			case "end":
				if n := len(under); n > 0 {
					end(rapid.IntRange(0, n-1).Draw(t, "which"))
				}
			case "time":
				now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "ms")) * time.Millisecond)
				j.overdue(now)
			}
			ask()
		}
		for len(under) > 0 {
			end(0)
			ask()
		}
		if answered != came || qs.left()+len(j.open) > 0 {
			t.Fatalf("%d came, %d are answered, left: %+v", came, answered, qs)
		}
	})
}

// Who has a name asked about that another waits for as well does not wait for it any more: nothing
// is kept of that, however long the question takes that the other has under way.
func TestNamesThatOthersAskedAboutAreNotKept(t *testing.T) {
	j, now := newHeadQuestions(), time.Now()
	a, b := conn(0, 1), conn(0, 2)
	j.asksOften(now, a, b)
	j.filters.add(now, interest.Wait{Conn: a, Filter: "dear/+"})
	dear := j.begin(now, &j.filters, filtersAtATime)
	for i := range 1000 {
		for _, c := range []exchange.Conn{a, b} {
			j.filters.add(now, interest.Wait{Conn: c, Filter: fmt.Sprint("x/+/", i)})
		}
		if q := j.begin(now, &j.filters, filtersAtATime); len(q.waits) != 1 {
			t.Fatalf("asked about %v", names(q.waits))
		} else {
			j.end(q)
		}
	}
	if n := j.filters.turns.often.Len(); n != 1 { // what a has under way
		t.Errorf("%d are kept", n)
	}
	if j.end(dear); j.filters.left() != 0 {
		t.Errorf("left: %+v", j.filters)
	}
}

// However many join one filter while it is being asked about: the next question is of them all, and
// what they cost the goroutine in one go does not grow with them. One who has many subscriptions
// with it has one turn, and leaves the others to others.
func TestVeryManyWhoJoinAFilterHaveFewTurns(t *testing.T) {
	const n = 100_000
	for _, asked := range []bool{true, false} {
		j, now := newHeadQuestions(), time.Now()
		often := []exchange.Conn{conn(0, 1), conn(0, 2)}
		j.asksOften(now, often...)
		came := 0
		add := func(c exchange.Conn) {
			j.filters.add(now, interest.Wait{Conn: c, Filter: "news/#"})
			came++
		}
		var first *question
		if asked {
			add(conn(1, 0))
			first, came = j.begin(now, &j.filters, filtersAtATime), 0
		}
		for range n {
			add(often[0])
		}
		add(often[1])
		for i := range uint32(n) {
			add(conn(0, 3+i))
		}
		if first != nil {
			first.release()
		}
		if ts := j.filters.turns.of["news/#"]; len(ts) != len(often)+turnsOfName {
			t.Errorf("asked about before: %v: %d turns", asked, len(ts))
		}
		next := j.begin(now, &j.filters, filtersAtATime)
		if next == nil || len(next.waits["news/#"]) != came {
			t.Fatalf("asked about before: %v: not all of %d are asked for", asked, came)
		}
		if j.end(next); first != nil {
			j.end(first)
		}
		if j.filters.left()+len(j.open) > 0 {
			t.Errorf("asked about before: %v: left: %+v", asked, j.filters)
		}
	}
}

// hesitant is a store whose first answer about heads comes after again is closed.
type hesitant struct {
	Store
	asked atomic.Int32
	begun chan struct{}
	again chan struct{}
}

func (h *hesitant) Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error) {
	if h.asked.Add(1) == 1 {
		close(h.begun)
		select {
		case <-h.again:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return h.Store.Heads(ctx, topics, filters, limit)
}

func TestAJoinIsAnsweredWhileTheStoreHesitates(t *testing.T) {
	w := newWorld(t)
	h := &hesitant{begun: make(chan struct{}), again: make(chan struct{})}
	m, loops := w.edge("e1", 2, func(c *Config) { h.Store, c.Store = c.Store, h })
	m.Join(conn(0, 1), 1, "room/1", true, 0)
	select {
	case <-h.begun:
	case <-time.After(edgetest.Patience):
		t.Fatal("the store was not asked")
	}
	m.Join(conn(1, 1), 2, "room/1", true, 0)
	if j := next[exchange.Joined](t, loops[1]); j.Err != nil || j.Sub != 2 {
		t.Errorf("%+v", j)
	}
	close(h.again)
	if j := next[exchange.Joined](t, loops[0]); j.Err != nil || j.Sub != 1 {
		t.Errorf("%+v", j)
	}
}

// However many join one topic and one filter together, each is answered, with all heads, and those
// who take fewer topics are told so.
func TestManyWhoJoinTogetherAreAnsweredInSteps(t *testing.T) {
	const each = 5 * answersOfStep
	w := newWorld(t)
	w.store.Publish("room/1", 3)
	w.store.Publish("room/2", 1)
	m, loops := w.edge("e1", 1)
	for n := range uint32(each) {
		m.Join(conn(0, n), 1, "room/1", true, 0)
		m.Join(conn(0, n), 2, "room/+", true, 2)
		m.Join(conn(0, n), 3, "room/+", true, 1)
		m.Join(conn(0, n), 4, "room/+", false, 0)
	}
	told := map[exchange.Conn]map[uint32]int{}
	for range 4 * each {
		j := next[exchange.Joined](t, loops[0])
		if code.Of(j.Err) != map[bool]wirev1.Code{true: wirev1.Code_CODE_TOO_MANY_TOPICS}[j.Sub == 3] {
			t.Fatalf("%+v", j)
		}
		if told[j.Conn] == nil {
			told[j.Conn] = map[uint32]int{}
		}
		if _, twice := told[j.Conn][j.Sub]; twice {
			t.Fatalf("%+v is answered twice", j.Conn)
		}
		told[j.Conn][j.Sub] = len(j.Heads)
	}
	for c, subs := range told {
		if !maps.Equal(subs, map[uint32]int{1: 1, 2: 2, 3: 0, 4: 0}) {
			t.Fatalf("%+v is told %v", c, subs)
		}
	}
	if n := m.joins.waiting.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}
