package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// What the store says of a topic tells whether messages are missing; a topic that nobody wants, or
// that has none, costs nothing.
func TestHeadsTellWhatIsMissing(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "a")
	head := func(topic string, epoch, n, oldest uint64) bool {
		return b.Head(b.now, exchange.Head{Topic: topic, Epoch: epoch, Head: n, Oldest: oldest})
	}
	if head("a", 1, 0, 1) || head("b", 1, 5, 1) || b.Len() != 0 || b.Stats().Topics.Load() != 0 {
		t.Fatalf("%d topics are kept", b.Len())
	}
	if head("a", 5, 4, 1) || b.Stats().Epochs.Load() != 0 { // where it begins
		t.Fatal("messages are missing before the first head")
	}
	b.log["a"] = &log{epoch: 5, head: 6, oldest: 2}
	if head("a", 5, 4, 2) || head("a", 4, 9, 1) || !head("a", 5, 6, 2) {
		t.Fatal("what is missing is not told")
	}
	b.pass(19 * time.Millisecond)
	b.want(0, "")
	b.pass(time.Millisecond)
	b.want(0, "a/5/5 a/5/6")
	if r, ok := b.Recent("a", 5, 5, 6, 0); !ok || r.Oldest != 2 || len(r.Messages) != 2 {
		t.Errorf("%+v", r)
	}
	if _, ok := b.Recent("a", 5, 5, 7, 0); ok {
		t.Error("a read up to what is not there is answered")
	}
	if _, ok := b.Recent("b", 0, 1, 0, 0); ok {
		t.Error("a read of an unknown topic is answered")
	}
	s := b.Stats()
	if s.Topics.Load() != 1 || s.Holes.Load() != 1 || s.Repaired.Load() != 2 || s.RingReads.Load() != 1 {
		t.Errorf("%d topics, %d holes, %d repaired, %d reads of recent messages", s.Topics.Load(), s.Holes.Load(), s.Repaired.Load(), s.RingReads.Load())
	}
	b.log["a"] = &log{epoch: 7, head: 0, oldest: 1}
	if head("a", 7, 0, 1) || s.Epochs.Load() != 1 {
		t.Errorf("%d epochs", s.Epochs.Load())
	}
	if b.Remove(0, "a"); s.Topics.Load() != 0 || b.Len() != 0 {
		t.Errorf("%d topics", s.Topics.Load())
	}
}

// Messages of sampled traces are named once each, whatever their topic, and no others.
func TestSampledMessagesAreNamed(t *testing.T) {
	b := newBench(t, 2, Config{})
	b.join(0, "a", 1, 0)
	b.Add(1, "e")
	b.Add(0, "e")
	for _, m := range []*exchange.Message{message("a", 1, 1), message("a", 1, 2), message("e", 0, 0), message("e", 0, 0), message("nobody", 0, 0)} {
		if m.Seq == 2 || m.Seq == 0 && len(b.sampled) < 2 {
			m.Traceparent = "00-x"
		}
		b.Deliver(b.now, m)
	}
	out, ok := b.Take()
	if !ok || len(out.Sampled) != 2 || out.Sampled[0].Seq != 2 || out.Sampled[1].Topic != "e" {
		t.Fatalf("%+v", out.Sampled)
	}
	if _, ok := b.Take(); ok || b.Stats().Unwanted.Load() != 1 {
		t.Errorf("more came out; %d unwanted", b.Stats().Unwanted.Load())
	}
}

// A loop that comes to a topic, by name or by a filter, gets what comes from then on, and one that
// leaves gets nothing more.
func TestLoopsComeAndGo(t *testing.T) {
	b := newBench(t, 3, Config{})
	b.join(0, "r/1", 1, 0)
	b.deliver("r/1", 1, 1)
	b.Add(1, "r/1")
	b.deliver("r/1", 1, 2)
	b.Add(2, "r/+")
	b.deliver("r/1", 1, 3)
	b.want(0, "r/1/1/1 r/1/1/2 r/1/1/3")
	b.want(1, "r/1/1/2 r/1/1/3")
	b.want(2, "r/1/1/3")
	if !slices.Equal(b.Filters(), []string{"r/+"}) || !slices.Equal(b.Topics(), []string{"r/1"}) || !b.Takes([]byte("r/9")) || !b.Wanted("r/9") || b.Takes(nil) || b.Takes([]byte("s/1")) {
		t.Errorf("filters %v, topics %v", b.Filters(), b.Topics())
	}
	b.BasingDone(b.Basing())
	b.Based("r/+", b.Generation("r/+"))
	b.Remove(2, "r/+")
	b.deliver("r/1", 1, 4)
	b.want(2, "")
	if len(b.Filters()) != 0 || b.IsBased("r/+") || b.covered("r/9") {
		t.Errorf("filters %v", b.Filters())
	}
	b.Remove(0, "r/1")
	b.Remove(1, "r/1")
	if len(b.Topics()) != 0 || b.Len() != 0 || b.Wanted("r/1") || b.Takes([]byte("r/1")) {
		t.Errorf("topics %v", b.Topics())
	}
	b.Based("r/+", b.Generation("r/+")) // whose last loop has gone meanwhile
	b.Expected("r/1")
	b.Expect("r/1")
	if b.IsBased("r/+") || b.Len() != 0 {
		t.Error("a filter that nobody wants is followed")
	}
}

// A topic without a known head waits for it, or for those of a filter, 3 s at most, and not at all
// once nobody asks.
func TestHeadsAreWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		begin  func(b *bench)
		end    func(b *bench)
		before time.Duration
	}{
		{"its own", func(b *bench) { b.Expect("r/a") }, func(b *bench) { b.Expected("r/a"); b.Expected("r/a") }, knownWithin},
		{"a filter's", func(b *bench) { b.Basing() }, func(b *bench) { b.BasingDone(0) }, knownWithin},
		{"nobody's", func(*bench) {}, func(*bench) {}, 20 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ends := range []bool{true, false} {
				b := newBench(t, 1, Config{})
				b.Add(0, "r/+")
				b.Add(0, "r/a")
				c.begin(b)
				b.deliver("r/a", 1, 8, 9)
				b.deliver("r/a", 1, 11)
				b.log["r/a"] = &log{epoch: 1, head: 11, oldest: 1}
				if c.before == knownWithin && ends {
					b.pass(knownWithin / 2)
					b.want(0, "")
					c.end(b)
					b.pass(20 * time.Millisecond)
				} else {
					b.pass(c.before - time.Millisecond)
					b.want(0, "")
					b.pass(21 * time.Millisecond)
				}
				b.pass(20 * time.Millisecond) // and then for the hole
				b.want(0, "r/a/1/8 r/a/1/9 r/a/1/10 r/a/1/11")
				b.check(t)
			}
		})
	}
}

// A topic outside of the filters whose topics are all known is no new one.
func TestOnlyTopicsOfABasedFilterAreOwedFromTheBeginning(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "r/+")
	b.Based("r/+", b.Generation("r/+"))
	b.join(0, "s/1", 1, 4)
	b.Add(0, "s/2")
	b.Expect("s/2")
	b.deliver("s/1", 1, 5)
	b.deliver("s/2", 1, 7)
	b.log["s/2"] = &log{epoch: 1, head: 7, oldest: 1}
	b.pass(100 * time.Millisecond)
	b.want(0, "s/1/1/5")
	b.Head(b.now, exchange.Head{Topic: "s/2", Epoch: 1, Head: 6, Oldest: 1})
	b.turn()
	b.want(0, "s/2/1/7")
}

// What is said to exist and is not in the log is given up after some reads, and nothing is due
// then.
func TestWhatTheLogNeverHadIsGivenUp(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	if !b.Head(b.now, exchange.Head{Topic: "a", Epoch: 1, Head: 6, Oldest: 1}) {
		t.Fatal("nothing is missing")
	}
	b.pass(20 * time.Millisecond)
	for n := range uint64(emptyReads) {
		if got := b.Stats().Holes.Load(); got != n+1 {
			t.Fatalf("%d reads, want %d", got, n+1)
		}
		b.pass(500 * time.Millisecond)
	}
	if _, due := b.Next(); due || b.Stats().Phantoms.Load() != 1 || b.Stats().Holes.Load() != emptyReads {
		t.Errorf("%d phantoms after %d reads", b.Stats().Phantoms.Load(), b.Stats().Holes.Load())
	}
	b.log["a"].head = 5
	b.deliver("a", 1, 5)
	b.want(0, "a/1/5")
}

// A topic that nobody wants any more is not read, whatever was missing of it.
func TestTheHolesOfATopicGoWithIt(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 0)
	b.deliver("a", 1, 3)
	b.Remove(0, "a")
	b.pass(100 * time.Millisecond)
	if b.Stats().Holes.Load() != 0 {
		t.Error("the log was read")
	}
	b.join(0, "a", 1, 0)
	b.log["a"].head, b.away = 3, true
	b.deliver("a", 1, 3)
	b.now = b.now.Add(20 * time.Millisecond)
	b.Advance(b.now)
	out, _ := b.Take()
	b.Remove(0, "a") // while it is read
	b.ReadDone(b.now, out.Reads[0], exchange.Range{Topic: "a", Epoch: 1, Head: 3, Messages: []*exchange.Message{message("a", 1, 1)}})
	b.join(0, "a", 1, 3)
	// of its former life
	b.ReadDone(b.now, out.Reads[0], exchange.Range{Topic: "a", Epoch: 1, Head: 3, Messages: []*exchange.Message{message("a", 1, 1)}})
	b.turn()
	b.want(0, "")
	b.check(t)
}

// What a loop refuses is counted where it is lost, and owed where it has a log; a new epoch is owed
// from its first message.
func TestWhatIsRefusedIsOwedOrLost(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 0)
	b.Add(0, "e")
	run := []*exchange.Message{message("e", 0, 0), message("gone", 1, 1), message("a", 9, 1), message("e", 0, 0)}
	if lost := b.Refused(0, run); lost != 2 || b.Owing() {
		t.Fatalf("%d lost, owing %v", lost, b.Owing())
	}
	b.full[0] = true
	b.deliver("a", 1, 1, 2)
	b.log["a"] = &log{epoch: 2, head: 2, oldest: 1}
	b.deliver("a", 2, 1, 2)
	b.full[0] = false
	b.check(t)
	b.Resend(b.post)
	b.want(0, "a/2/1 a/2/2")
	b.deliver("a", 2, 3)
	b.want(0, "a/2/3")
	b.full[0] = true
	b.deliver("a", 2, 4)
	b.Remove(0, "a") // who has left is owed nothing
	b.full[0] = false
	b.Resend(b.post)
	if b.want(0, ""); b.Owing() {
		t.Error("owing")
	}
}

// A read that comes back from another epoch than it was asked of changes nothing that is newer.
func TestReadsOfAnotherEpoch(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 0)
	ask := func(epoch, seq uint64) Read {
		b.Deliver(b.now, message("a", epoch, seq))
		b.now = b.now.Add(20 * time.Millisecond)
		b.Advance(b.now)
		out, ok := b.Take()
		if !ok || len(out.Reads) != 1 {
			t.Fatalf("%+v", out)
		}
		return out.Reads[0]
	}
	first := ask(1, 3)
	b.Deliver(b.now, message("a", 2, 2)) // meanwhile it begins anew
	b.log["a"] = &log{epoch: 2, head: 2, oldest: 1}
	b.ReadDone(b.now, first, exchange.Range{Topic: "a", Epoch: 1, Head: 3, Messages: []*exchange.Message{message("a", 1, 1)}})
	b.turn()
	b.want(0, "a/2/1 a/2/2")
	second := ask(2, 4)
	b.log["a"] = &log{epoch: 3, head: 1, oldest: 1}
	b.ReadDone(b.now, second, exchange.Range{Topic: "a", Epoch: 3, Head: 1, Oldest: 1, Err: code.New(wirev1.Code_CODE_EPOCH_CHANGED, "anew")})
	b.turn()
	b.want(0, "a/3/1")
	third := ask(3, 3)
	b.log["a"].head = 3
	b.ReadDone(b.now, third, exchange.Range{Topic: "a", Epoch: 3, Err: code.New(wirev1.Code_CODE_EPOCH_CHANGED, "it is not")})
	b.turn()
	b.pass(500 * time.Millisecond)
	b.want(0, "a/3/2 a/3/3")
	if n := b.Stats().Epochs.Load(); n != 2 {
		t.Errorf("%d epochs", n)
	}
	b.check(t)
}

// Heads and ranges are raised to what the loops were sent of the same log alone.
func TestOnlyTheSameLogIsAhead(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 5, 0)
	b.deliver("a", 5, 1, 2)
	for _, c := range []struct{ in, want exchange.Head }{
		{exchange.Head{Topic: "a", Epoch: 5, Head: 1, Oldest: 1}, exchange.Head{Topic: "a", Epoch: 5, Head: 2, Oldest: 1}},
		{exchange.Head{Topic: "a", Epoch: 5, Head: 3, Oldest: 1}, exchange.Head{Topic: "a", Epoch: 5, Head: 3, Oldest: 1}},
		{exchange.Head{Topic: "a", Epoch: 4, Head: 9, Oldest: 3}, exchange.Head{Topic: "a", Epoch: 5, Head: 2, Oldest: 1}},
		{exchange.Head{Topic: "a", Epoch: 6, Head: 1, Oldest: 1}, exchange.Head{Topic: "a", Epoch: 6, Head: 1, Oldest: 1}},
		{exchange.Head{Topic: "b", Epoch: 1, Head: 1, Oldest: 1}, exchange.Head{Topic: "b", Epoch: 1, Head: 1, Oldest: 1}},
	} {
		if got := b.AheadHead(c.in); got != c.want {
			t.Errorf("%+v became %+v, want %+v", c.in, got, c.want)
		}
		r := b.Ahead(exchange.Range{Topic: c.in.Topic, Epoch: c.in.Epoch, Head: c.in.Head})
		if r.Epoch != c.want.Epoch || r.Head != c.want.Head || (r.Err != nil) != (c.in.Epoch < c.want.Epoch) {
			t.Errorf("a range at %+v became %+v", c.in, r)
		}
	}
	b.Add(0, "u")
	b.Expect("u")
	b.deliver("u", 9, 4) // not known yet
	if h := b.AheadHead(exchange.Head{Topic: "u", Epoch: 8, Head: 1}); h.Epoch != 8 || b.Known("u") || !b.Known("a") || b.Known("x") {
		t.Errorf("%+v", h)
	}
	if r := b.Ahead(exchange.Range{Topic: "a"}); r.Head != 0 || r.Err != nil {
		// a failed read says nothing
		t.Errorf("%+v", r)
	}
	if r := b.Ahead(exchange.Range{Topic: "u", Epoch: 8}); r.Err != nil {
		t.Errorf("%+v", r)
	}
}

// A message too large to be held beside others is held alone, and what came twice is counted.
func TestALargeMessageIsHeld(t *testing.T) {
	b := newBench(t, 1, Config{HeldBytes: 10})
	b.join(0, "a", 1, 0)
	large := message("a", 1, 2)
	large.Frame = make([]byte, 100)
	b.Deliver(b.now, large)
	b.Deliver(b.now, large)
	b.deliver("a", 1, 3)
	if s := b.Stats(); s.Duplicates.Load() != 1 || s.HeldDropped.Load() != 1 || len(b.topics["a"].held) != 1 {
		t.Fatalf("%d twice, %d dropped", s.Duplicates.Load(), s.HeldDropped.Load())
	}
	b.deliver("a", 1, 1)
	b.want(0, "a/1/1 a/1/2")
	if fmt.Sprint(b.topics["a"].held) != "[]" {
		t.Error("something is held")
	}
}
