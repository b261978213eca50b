package feed

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// joins is what the loops of a test want, told to a feed as the mesh does, and what they take: as
// the hub, nothing up to the head that they were told when they came.
type joins struct {
	*bench
	of    []map[string]bool   // by loop
	heads []map[string]uint64 // by loop and topic
	taken [][]string
}

func newJoins(t testing.TB, loops int, cfg Config) *joins {
	j := &joins{bench: newBench(t, loops, cfg), taken: make([][]string, loops)}
	for range loops {
		j.of, j.heads = append(j.of, map[string]bool{}), append(j.heads, map[string]uint64{})
	}
	return j
}

func (j *joins) take() {
	for loop, got := range j.got {
		for _, m := range got {
			if m.Epoch == 0 || m.Seq > j.heads[loop][m.Topic] {
				j.taken[loop] = append(j.taken[loop], fmt.Sprint(m.Topic, " ", m.Seq))
			}
		}
		j.got[loop] = nil
	}
}

func (j *joins) after(d time.Duration) {
	j.now = j.now.Add(d)
	j.Advance(j.now)
	j.Sweep(j.Len())
	j.turn()
	j.take()
}

func (j *joins) wants(loop int, t string) bool {
	for filter := range j.of[loop] {
		if topic.Match(filter, t) {
			return true
		}
	}
	return false
}

func (j *joins) wanted(t string) bool {
	return slices.ContainsFunc([]int{0, 1, 2}, func(loop int) bool { return j.wants(loop, t) })
}

func (j *joins) come(loop int, filter string) {
	for t, l := range j.log {
		if topic.Match(filter, t) && !j.wants(loop, t) {
			j.heads[loop][t] = l.head
		}
	}
	j.of[loop][filter] = true
	j.Add(loop, filter)
	switch {
	case !topic.IsFilter(filter) && j.cfg.Durable(filter):
		j.Expect(filter)
		if j.tellHeads(filter); j.log[filter] == nil {
			j.Head(j.now, exchange.Head{Topic: filter}) // the store knows nothing of it
		}
		j.Expected(filter)
	case topic.IsFilter(filter) && !j.IsBased(filter):
		since := j.Basing()
		j.tellHeads(filter)
		j.BasingDone(since)
		j.Based(filter, j.Generation(filter))
	}
	j.after(25 * time.Millisecond) // what nobody wanted for less than a second is read, to no avail
}

// tellHeads tells what the store knows of the topics that match.
func (j *joins) tellHeads(filter string) {
	for _, t := range slices.Sorted(maps.Keys(j.log)) {
		if topic.Match(filter, t) {
			j.head(t)
		}
	}
}

// Whatever loops come to topics and leave them, by name and by filters that overlap: each gets
// every message, durable or not, that comes while it wants the topic, once, and nothing else; and
// the feed keeps nothing for those that left.
func TestEachLoopGetsWhatItWants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJoins(t, 3, Config{Durable: func(t string) bool { return strings.HasPrefix(t, "d/") }})
		want := make([][]string, 3)
		topics := rapid.SampledFrom([]string{"d/1", "d/2", "d/x/1", "e/1"})
		filters := rapid.SampledFrom([]string{"d/1", "d/x/1", "e/1", "d/+", "d/#", "#", "+/1"})
		unwanted := uint64(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			loop := rapid.IntRange(0, 2).Draw(rt, "loop")
			switch rapid.SampledFrom([]string{"come", "leave", "publish", "publish", "time"}).Draw(rt, "step") {
			case "come":
				if f := filters.Draw(rt, "filter"); !j.of[loop][f] {
					j.come(loop, f)
				}
			case "leave":
				if f := filters.Draw(rt, "filter"); j.of[loop][f] {
					delete(j.of[loop], f)
					j.Remove(loop, f)
				}
			case "publish":
				name := topics.Draw(rt, "topic")
				epoch, seq := uint64(0), uint64(0)
				if j.cfg.Durable(name) {
					l := j.log[name]
					if l == nil {
						l = &log{epoch: 1, oldest: 1}
						j.log[name] = l
					}
					l.head++
					epoch, seq = 1, l.head
				}
				if takes := j.Takes([]byte(name)); takes != j.wanted(name) || j.Wanted(name) != takes {
					rt.Fatalf("%s is taken: %v", name, takes)
				}
				if !j.wanted(name) {
					unwanted++
					continue
				}
				j.deliver(name, epoch, seq)
				for loop := range want {
					if j.wants(loop, name) {
						want[loop] = append(want[loop], fmt.Sprint(name, " ", seq))
					}
				}
			case "time":
				j.after(time.Duration(rapid.IntRange(1, 1100).Draw(rt, "ms")) * time.Millisecond)
			}
			j.take()
			j.check(rt)
			j.checkWants(rt)
		}
		for loop := range want {
			if !slices.Equal(j.taken[loop], want[loop]) {
				rt.Fatalf("loop %d took %v, want %v", loop, j.taken[loop], want[loop])
			}
		}
		s := j.Stats()
		if s.Unwanted.Load() != unwanted || s.Duplicates.Load() != 0 {
			rt.Fatalf("%d unwanted, not %d; %d came twice", s.Unwanted.Load(), unwanted, s.Duplicates.Load())
		}
		j.after(2 * sweepEvery)
		for name := range j.topics {
			if !j.wanted(name) {
				rt.Fatalf("%s is kept, and nobody wants it", name)
			}
		}
		if s.Topics.Load() != int64(j.Len()) {
			rt.Fatalf("%d topics are counted, %d kept", s.Topics.Load(), j.Len())
		}
	})
}

// checkWants compares what the feed says of filters and topics with what the loops want.
func (j *joins) checkWants(t *rapid.T) {
	filters, names := map[string]bool{}, map[string]bool{}
	for _, of := range j.of {
		for f := range of {
			if topic.IsFilter(f) {
				filters[f] = true
			} else if j.cfg.Durable(f) {
				names[f] = true
			}
		}
	}
	got := j.Filters()
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(maps.Keys(filters))) {
		t.Fatalf("filters %v, want %v", got, filters)
	}
	got = j.Topics()
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(maps.Keys(names))) {
		t.Fatalf("topics %v, want %v", got, names)
	}
	for _, f := range []string{"d/+", "d/#", "#", "+/1"} {
		if j.IsBased(f) != filters[f] {
			t.Fatalf("%s is based: %v", f, j.IsBased(f))
		}
	}
	for _, name := range []string{"d/1", "d/2", "d/x/1"} {
		if j.wanted(name) && j.log[name] != nil && !j.Known(name) {
			t.Fatalf("%s is wanted and not known", name)
		}
	}
}

// However fast clients come and go with filters, all topics are looked at once a second, no more.
func TestTopicsAreSweptOnceASecond(t *testing.T) {
	b := newBench(t, 1, Config{})
	come := func() {
		b.Add(0, "r/+")
		b.Based("r/+", b.Generation("r/+"))
		b.log["r/1"] = &log{epoch: 1, head: 1, oldest: 1}
		b.deliver("r/1", 1, 1)
		b.Remove(0, "r/+")
	}
	come()
	if b.pass(time.Millisecond); b.Len() != 0 {
		t.Fatal("the topic is not forgotten")
	}
	come()
	if b.pass(sweepEvery - time.Millisecond); b.Len() != 1 {
		t.Error("all topics are looked at for each client that leaves")
	}
	if b.pass(time.Millisecond); b.Len() != 0 {
		t.Error("the topic is kept")
	}
}

// A topic whose policy is durable no more, and whose messages came with a log, goes on being
// compared with the store.
func TestATopicWithALogIsCompared(t *testing.T) {
	b := newBench(t, 1, Config{Durable: func(string) bool { return false }})
	b.join(0, "a", 1, 3)
	b.Add(0, "e")
	if got := b.Topics(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("compared: %v", got)
	}
}

// What a router sends to all edges is looked up before anything is allocated, however many topics
// nobody here wants.
func TestWhatNobodyWantsCostsNoMemory(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "a")
	name := []byte(strings.Repeat("x", topic.MaxLen))
	if n := testing.AllocsPerRun(100, func() { b.Takes(name) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := b.Stats().Unwanted.Load(); n != 101 {
		t.Errorf("%d unwanted", n)
	}
}

// The next thing to do is a hole's, a failed read's, or whichever comes first.
func TestTheNextThingIsKnown(t *testing.T) {
	b := newBench(t, 1, Config{})
	next := func(want time.Duration) {
		t.Helper()
		at, due := b.Next()
		if got := at.Sub(b.now); due != (want > 0) || due && got != want {
			t.Fatalf("next in %v, %v, want %v", got, due, want)
		}
	}
	b.join(0, "a", 1, 0)
	b.join(0, "b", 1, 0)
	next(0)
	b.away, b.log["a"].head, b.log["b"].head = true, 2, 2
	b.deliver("a", 1, 2)
	next(20 * time.Millisecond)
	b.pass(20 * time.Millisecond)
	next(500 * time.Millisecond)
	b.pass(490 * time.Millisecond)
	b.deliver("b", 1, 2)
	next(10 * time.Millisecond)
	b.away = false
	b.pass(10 * time.Millisecond)
	next(10 * time.Millisecond)
	b.pass(10 * time.Millisecond)
	next(0)
	b.want(0, "a/1/1 a/1/2 b/1/1 b/1/2")
}

// A log that lags brings messages late, now and then some: as long as it brings any, what was
// announced is waited for.
func TestALogThatComesOnIsWaitedFor(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 0)
	b.deliver("a", 1, 9)
	b.pass(20 * time.Millisecond)
	for seq := uint64(1); seq <= 8; seq++ {
		// beside the one that followed at once: all but the last of those that bring nothing
		b.pass((emptyReads - 2) * 500 * time.Millisecond)
		b.want(0, "")
		b.log["a"].head = seq
		b.pass(500 * time.Millisecond)
		if seq < 8 {
			b.want(0, fmt.Sprint("a/1/", seq))
		}
	}
	b.want(0, "a/1/8 a/1/9")
	if n := b.Stats().Phantoms.Load(); n != 0 {
		t.Errorf("%d were given up", n)
	}
}

// A loop that has missed something of very many topics gets it in runs that it has room for.
func TestWhatWasMissedComesInRuns(t *testing.T) {
	b := newBench(t, 2, Config{})
	const topics = resendMost + resendMost/2
	b.full[0] = true
	for i := range topics {
		name := fmt.Sprint("t", i)
		b.join(0, name, 1, 0)
		b.deliver(name, 1, 1)
	}
	var runs []int
	for b.Owing() {
		b.Resend(func(_ int, run []*exchange.Message) bool {
			runs = append(runs, len(run))
			return true
		})
		b.check(t)
	}
	if !slices.Equal(runs, []int{resendMost, resendMost / 2}) {
		t.Errorf("runs of %v", runs)
	}
}

// A loop that left what it had missed is asked for no room, and is owed nothing; the others go on.
func TestWhoLeftIsOwedNothing(t *testing.T) {
	b := newBench(t, 2, Config{})
	b.join(0, "a", 1, 0)
	b.join(1, "a", 1, 0)
	b.full[0], b.full[1] = true, true
	b.deliver("a", 1, 1)
	b.Remove(0, "a")
	posted := 0
	b.Resend(func(loop int, run []*exchange.Message) bool {
		posted++
		return loop == 1 && len(run) == 1
	})
	if b.check(t); posted != 1 || b.Owing() {
		t.Fatalf("%d runs, owing %v", posted, b.Owing())
	}
	b.deliver("a", 1, 2)
	b.Remove(1, "a") // the last one
	if b.check(t); b.Owing() || b.Len() != 0 {
		t.Error("a topic that nobody wants is owed")
	}
}
