package survey

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/feed"
)

// asker is a subscription with wildcards: it takes nothing before it is answered, and from then on
// what is behind the heads that it was told, of other topics everything.
type asker struct {
	loop     int
	filter   string
	answered bool
	err      error
	at       map[string]uint64
}

// question is a survey on its way, and who waits for it.
type question struct {
	*Survey
	of   map[string][]*asker
	read bool
	told []string
}

// world is a feed, a store's heads, and who asks.
type world struct {
	*feed.Feed
	t       *rapid.T
	now     time.Time
	log     map[string]uint64 // heads
	subs    []*asker
	waiting []*asker
	open    []*question
	posted  []map[string]uint64 // by loop and topic
	limit   int
}

func (w *world) message(name string, seq uint64) *exchange.Message {
	return &exchange.Message{Topic: name, Epoch: 1, Seq: seq, Frame: []byte("frame")}
}

// handOn gives the loops what the feed has for them, and answers its reads.
func (w *world) handOn() {
	for {
		out, ok := w.Take()
		if !ok {
			return
		}
		for loop, run := range out.Loops {
			for _, m := range run {
				w.take(loop, m)
			}
		}
		for _, r := range out.Reads {
			answer := exchange.Range{Topic: r.Topic, From: r.From, Epoch: 1, Head: w.log[r.Topic], Oldest: 1}
			for seq := r.From; seq <= min(r.To, w.log[r.Topic]); seq++ {
				answer.Messages = append(answer.Messages, w.message(r.Topic, seq))
			}
			w.ReadDone(w.now, r, answer)
		}
	}
}

func (w *world) take(loop int, m *exchange.Message) {
	w.posted[loop][m.Topic] = max(w.posted[loop][m.Topic], m.Seq)
	for _, s := range w.subs {
		if s.loop != loop || !s.answered || s.err != nil || !topic.Match(s.filter, m.Topic) || m.Seq <= s.at[m.Topic] {
			continue
		}
		if m.Seq != s.at[m.Topic]+1 {
			w.t.Fatalf("%s of loop %d is at %d of %s and got %d", s.filter, loop, s.at[m.Topic], m.Topic, m.Seq)
		}
		s.at[m.Topic] = m.Seq
	}
}

func (w *world) come(loop int, filter string) {
	for _, s := range w.subs {
		if s.loop == loop && s.filter == filter {
			return
		}
	}
	s := &asker{loop: loop, filter: filter}
	w.subs, w.waiting = append(w.subs, s), append(w.waiting, s)
	w.Add(loop, filter)
}

func (w *world) leave(i int) {
	s := w.subs[i]
	w.subs = slices.Delete(w.subs, i, i+1)
	w.waiting = slices.DeleteFunc(w.waiting, func(o *asker) bool { return o == s })
	w.Remove(s.loop, s.filter)
}

// ask begins one question for all who wait.
func (w *world) ask() {
	q := &question{of: map[string][]*asker{}}
	for _, s := range w.waiting {
		q.of[s.filter] = append(q.of[s.filter], s)
	}
	var asked []Asked
	for _, f := range slices.Sorted(maps.Keys(q.of)) {
		asked = append(asked, Asked{Filter: f, Heads: true, Limit: w.limit})
	}
	q.Survey = Begin(w.Feed, asked)
	q.Survey.most, q.Survey.news = 1, 1
	w.waiting, w.open = nil, append(w.open, q)
}

// step goes on with a question, and reports whether that was the last step.
func (w *world) step(q *question) (done bool) {
	if !q.read {
		q.read = true
		var heads []exchange.Head
		for _, name := range slices.Sorted(maps.Keys(w.log)) {
			for f := range q.of { // some are named twice
				if topic.Match(f, name) {
					heads = append(heads, exchange.Head{Topic: name, Epoch: 1, Head: w.log[name], Oldest: 1})
				}
			}
		}
		q.Take(heads, nil, nil)
		return false
	}
	done = q.Step(w.now, w.handOn, func(filter string, heads []exchange.Head, err error) bool {
		if !slices.Contains(q.told, filter) { // once more, with the next step
			q.told = append(q.told, filter)
			if all := q.of[filter]; len(all) > 1 { // some of those who wait now, the others then
				q.of[filter] = all[:1]
				w.answer(q, filter, heads, err)
				q.of[filter] = all[1:]
			}
			return true
		}
		w.answer(q, filter, heads, err)
		return false
	})
	w.handOn()
	return done
}

func (w *world) answer(q *question, filter string, heads []exchange.Head, err error) {
	told := map[string]uint64{}
	for _, h := range heads {
		if _, twice := told[h.Topic]; twice || h.Head > w.log[h.Topic] || !topic.Match(filter, h.Topic) {
			w.t.Fatalf("%s is told of %+v among %+v", filter, h, heads)
		}
		told[h.Topic] = h.Head
	}
	matches := 0
	for name := range w.log {
		if topic.Match(filter, name) {
			matches++
		}
	}
	if err != nil && (code.Of(err) != wirev1.Code_CODE_TOO_MANY_TOPICS || matches <= w.limit) || len(heads) > w.limit {
		w.t.Fatalf("%s matches %d topics, is told %d, %v", filter, matches, len(heads), err)
	}
	for _, s := range q.of[filter] {
		if !slices.Contains(w.subs, s) {
			continue
		}
		for name, seq := range w.posted[s.loop] {
			if err == nil && topic.Match(filter, name) && told[name] < seq {
				w.t.Fatalf("%s is told %d of %s, of which loop %d had %d before", filter, told[name], name, s.loop, seq)
			}
		}
		s.answered, s.err, s.at = true, err, maps.Clone(told)
	}
}

func (w *world) wanted(name string) bool {
	return slices.ContainsFunc(w.subs, func(s *asker) bool { return topic.Match(s.filter, name) })
}

func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(end.Sub(w.now), 10*time.Millisecond))
		w.Advance(w.now)
		w.handOn()
	}
}

// Filters with wildcards are answered in steps, between which anything may happen: others come, the
// same filter is left by all and joined anew, topics appear, messages come and are lost. Whoever is
// answered is told of no topic twice and of none too little, and has every message from there on
// once and in order; nothing is kept for those who left.
func TestFiltersAreAnsweredInSteps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			Feed: feed.New(feed.Config{Loops: 2, Durable: func(string) bool { return true }}), t: rt, now: time.UnixMicro(1e6),
			log: map[string]uint64{}, posted: []map[string]uint64{{}, {}}, limit: rapid.SampledFrom([]int{1, 3, 10}).Draw(rt, "limit"),
		}
		topics := rapid.SampledFrom([]string{"d/1", "d/2", "d/x/1", "e/1"})
		filters := rapid.SampledFrom([]string{"d/+", "d/#", "#", "+/1"})
		steps := []string{"come", "come", "leave", "ask", "step", "step", "step", "step", "step", "publish", "publish", "publish", "time", "sweep", "head"}
		byName := rapid.Bool().Draw(rt, "by name")
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			switch rapid.SampledFrom(steps).Draw(rt, "step") {
			case "come":
				w.come(rapid.IntRange(0, 1).Draw(rt, "loop"), filters.Draw(rt, "filter"))
			case "leave":
				if n := len(w.subs); n > 0 {
					w.leave(rapid.IntRange(0, n-1).Draw(rt, "who"))
				}
			case "ask":
				if len(w.waiting) > 0 {
					w.ask()
				}
			case "step":
				if n := len(w.open); n > 0 {
					if i := rapid.IntRange(0, n-1).Draw(rt, "question"); w.step(w.open[i]) {
						w.open = slices.Delete(w.open, i, i+1)
					}
				}
			case "publish":
				name := topics.Draw(rt, "topic")
				w.log[name]++
				if rapid.IntRange(0, 3).Draw(rt, "arrives") > 0 {
					w.Deliver(w.now, w.message(name, w.log[name]))
				}
			case "time": // with questions less than what heads are waited for, in all
				most := 1200
				if len(w.open) > 0 {
					most = 30
				}
				w.pass(time.Duration(rapid.IntRange(1, most).Draw(rt, "ms")) * time.Millisecond)
			case "sweep":
				w.Sweep(1)
			case "head": // of the backstop, which names what it knows, or of a join by name
				if name := topics.Draw(rt, "topic"); w.log[name] > 0 && (w.Known(name) || byName) {
					w.Head(w.now, exchange.Head{Topic: name, Epoch: 1, Head: w.log[name], Oldest: 1})
				}
			}
			w.handOn()
		}
		w.rest()
	})
}

// rest answers all questions, has every head compared, and looks at what has become of it.
func (w *world) rest() {
	for w.ask(); len(w.open) > 0; {
		if w.step(w.open[0]) {
			w.open = w.open[1:]
		}
	}
	for range 3 {
		for name, seq := range w.log {
			if w.wanted(name) {
				w.Head(w.now, exchange.Head{Topic: name, Epoch: 1, Head: seq, Oldest: 1})
			}
		}
		w.pass(time.Second)
		w.Sweep(w.Len())
		w.handOn()
	}
	topics := 0
	for name := range w.log {
		if w.wanted(name) {
			topics++
		}
	}
	for _, s := range w.subs {
		if !s.answered || !w.IsBased(s.filter) {
			w.t.Fatalf("%s of loop %d is answered: %v", s.filter, s.loop, s.answered)
		}
		for name, seq := range w.log {
			if s.err == nil && topic.Match(s.filter, name) && s.at[name] != seq {
				w.t.Fatalf("%s of loop %d is at %d of %s, not %d", s.filter, s.loop, s.at[name], name, seq)
			}
		}
	}
	if w.Len() != topics {
		w.t.Fatalf("%d topics are kept, %d are wanted", w.Len(), topics)
	}
}

// answers of a survey, by filter.
func answers(s *Survey) map[string]string {
	out := map[string]string{}
	for !s.Step(time.Now(), func() {}, func(filter string, heads []exchange.Head, err error) bool {
		if err != nil {
			out[filter] = code.Name(code.Of(err))
			return false
		}
		for _, h := range heads {
			out[filter] += fmt.Sprintf(" %s/%d/%d", h.Topic, h.Epoch, h.Head)
		}
		return false
	}) {
	}
	return out
}

func TestHeadsAreSortedByFilter(t *testing.T) {
	f := feed.New(feed.Config{Loops: 1})
	for _, filter := range []string{"a/+", "a/#", "b/+", "c/+", "d/+"} {
		f.Add(0, filter)
	}
	s := Begin(f, []Asked{
		{Filter: "a/+", Heads: true, Limit: 1}, {Filter: "a/#", Heads: true, Limit: 1}, {Filter: "b/+", Heads: true, Limit: 9},
		{Filter: "c/+"}, {Filter: "d/+", Heads: true},
	})
	s.Take([]exchange.Head{
		// of a shard that moves
		{Topic: "a/1", Epoch: 1, Head: 7}, {Topic: "a/1", Epoch: 2, Head: 3}, {Topic: "a/1", Epoch: 2, Head: 2},
		{Topic: "a/1/1", Epoch: 1, Head: 1}, {Topic: "c/1", Epoch: 1, Head: 1}, {Topic: "d/1", Epoch: 1, Head: 1},
	}, []string{"d/+"}, nil)
	want := map[string]string{"a/+": " a/1/2/3", "a/#": "TOO_MANY_TOPICS", "d/+": "TOO_MANY_TOPICS"}
	if got := answers(s); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	// what is too much for who asked is known to the feed all the same
	if !f.IsBased("a/+") || !f.IsBased("a/#") || !f.IsBased("b/+") || !f.IsBased("c/+") || f.IsBased("d/+") || !f.Known("c/1") {
		t.Error("the feed does not know the filters")
	}
}

func TestAStoreThatDoesNotAnswer(t *testing.T) {
	f := feed.New(feed.Config{Loops: 1})
	f.Add(0, "a/+")
	f.Add(0, "b/+")
	s := Begin(f, []Asked{{Filter: "a/+", Heads: true}, {Filter: "b/+"}})
	s.Take(nil, nil, code.From(code.New(wirev1.Code_CODE_UNAVAILABLE, errors.ErrUnsupported.Error())))
	if got := answers(s); got["a/+"] != "UNAVAILABLE" || got["b/+"] != "" || f.IsBased("a/+") || f.IsBased("b/+") {
		t.Errorf("got %v", got)
	}
}

// given are the messages that a feed hands on.
func given(f *feed.Feed) (seqs []uint64) {
	for out, ok := f.Take(); ok; out, ok = f.Take() {
		for _, run := range out.Loops {
			for _, m := range run {
				seqs = append(seqs, m.Seq)
			}
		}
	}
	return seqs
}

// Some of those who wait for a filter are answered, the others not yet, when a topic is created
// whose head comes because of another question: who was answered is owed all of it.
func TestATopicIsCreatedWhileAFilterIsAnswered(t *testing.T) {
	now, w := time.UnixMicro(1e6), &world{}
	f := feed.New(feed.Config{Loops: 1})
	f.Add(0, "r/+")
	s := Begin(f, []Asked{{Filter: "r/+", Heads: true}})
	s.Take(nil, nil, nil)
	told := 0
	answer := func(string, []exchange.Head, error) bool { told++; return told == 1 }
	for told == 0 {
		s.Step(now, func() {}, answer)
	}
	f.Deliver(now, w.message("r/new", 1))
	f.Head(now, exchange.Head{Topic: "r/new", Epoch: 1, Head: 1, Oldest: 1})
	for !s.Step(now, func() {}, answer) {
	}
	f.Advance(now.Add(time.Second))
	if got := given(f); !slices.Equal(got, []uint64{1}) {
		t.Errorf("handed on: %v", got)
	}
}

// A topic appears, while a question is under way, whose first messages retention took: the answer
// tells of what was handed on.
func TestATopicBeginsBehindRetention(t *testing.T) {
	now, w := time.UnixMicro(1e6), &world{}
	f := feed.New(feed.Config{Loops: 1})
	f.Add(0, "#")
	f.Based("#", f.Generation("#"))
	f.Add(0, "r/+")
	s := Begin(f, []Asked{{Filter: "r/+", Heads: true}})
	f.Deliver(now, w.message("r/new", 3))
	now = now.Add(30 * time.Millisecond)
	f.Advance(now)
	out, _ := f.Take()
	if len(out.Reads) != 1 {
		t.Fatalf("%d reads", len(out.Reads))
	}
	read := out.Reads[0]
	f.ReadDone(now, read, exchange.Range{Topic: read.Topic, From: read.From, Epoch: 1, Head: 3, Oldest: 3})
	if got := given(f); !slices.Equal(got, []uint64{3}) {
		t.Fatalf("handed on: %v", got)
	}
	s.Take(nil, nil, nil)
	if got := answers(s); got["r/+"] != " r/new/1/3" {
		t.Errorf("message 3 was handed on before the answer %v", got)
	}
}

// Topics that appear and match no filter of a question are not kept for it, and do not hold up its
// answer.
func TestStrangersAreNotKept(t *testing.T) {
	const strangers = 10_000
	now, f := time.UnixMicro(1e6), feed.New(feed.Config{Loops: 1})
	f.Add(0, "r/+")
	s := Begin(f, []Asked{{Filter: "r/+", Heads: true, Limit: 10}})
	appear := func(name string) {
		f.Add(0, name)
		f.Head(now, exchange.Head{Topic: name, Epoch: 1, Head: 5, Oldest: 1})
	}
	for i := range strangers {
		appear(fmt.Sprint("other/", i))
	}
	appear("r/1")
	s.Take(nil, nil, nil)
	steps, got := 0, 0
	for !s.Step(now, func() {}, func(_ string, heads []exchange.Head, _ error) bool { got = len(heads); return false }) {
		steps++
	}
	if len(s.heads) != 1 || len(s.topics) != 1 || got != 1 {
		t.Errorf("%d heads and %d names are kept, %d told", len(s.heads), len(s.topics), got)
	}
	if most := strangers/newsATime + 3; steps > most {
		t.Errorf("%d steps, want %d at most", steps, most)
	}
}
