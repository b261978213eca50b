package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check looks at everything that must be true of a feed between two calls.
func (b *bench) check(t tester) {
	t.Helper()
	bytes, listed := 0, map[*state]bool{}
	var newer *state
	for st := b.recent.newest; st != nil; newer, st = st, st.older {
		if listed[st] || st.newer != newer {
			t.Fatalf("%s stands in the list of recent topics twice, or does not know who is newer", st.topic)
		}
		listed[st] = true
		bytes += st.size
	}
	if b.recent.oldest != newer || b.recent.bytes != bytes || bytes > b.cfg.RingBytes {
		t.Fatalf("the oldest topic is %v, not %v; %d bytes are counted of %d, %d at most", b.recent.oldest, newer, b.recent.bytes, bytes, b.cfg.RingBytes)
	}
	for name, st := range b.topics {
		b.checkTopic(t, st)
		if len(st.ring) > 0 && !listed[st] {
			t.Fatalf("%s has recent messages, and is not in their list", name)
		}
		for loop := range st.owed {
			if !b.owing[loop][st] {
				t.Fatalf("loop %d does not know that it misses something of %s", loop, name)
			}
		}
	}
	for st := range listed {
		if b.topics[st.topic] != st {
			t.Fatalf("%s is forgotten, and its recent messages are not", st.topic)
		}
	}
	for loop, topics := range b.owing {
		for st := range topics {
			if _, owes := st.owed[loop]; !owes || b.topics[st.topic] != st {
				t.Fatalf("loop %d misses something of %s, which knows nothing of it", loop, st.topic)
			}
		}
	}
}

func (b *bench) checkTopic(t tester, st *state) {
	t.Helper()
	size := 0
	for i, m := range st.ring {
		size += m.Size()
		if m.Seq != st.last-uint64(len(st.ring)-1-i) || m.Epoch != st.epoch || m.Topic != st.topic {
			t.Fatalf("recent message %d of %d of %s up to %d is %s/%d/%d", i, len(st.ring), st.topic, st.last, m.Topic, m.Epoch, m.Seq)
		}
	}
	if st.size != size || size > b.cfg.RingTopicBytes || len(st.ring) > b.cfg.RingMessages {
		t.Fatalf("%s counts %d bytes of recent messages, which are %d in %d", st.topic, st.size, size, len(st.ring))
	}
	size = 0
	for i, m := range st.held {
		size += m.Size()
		if m.Seq <= st.last && st.known || i > 0 && m.Seq <= st.held[i-1].Seq {
			t.Fatalf("%s is at %d and holds %d", st.topic, st.last, m.Seq)
		}
	}
	if st.bytes != size || len(st.held) > b.cfg.HeldMessages || size > b.cfg.HeldBytes && len(st.held) > 1 {
		t.Fatalf("%s counts %d bytes held, which are %d in %d", st.topic, st.bytes, size, len(st.held))
	}
	if len(st.owed) > 0 != (st.tail != nil) || st.tail != nil && st.tail.Epoch == st.epoch && st.tail.Seq > st.last {
		t.Fatalf("%s is owed to %v, and its last message is %v", st.topic, st.owed, st.tail)
	}
	if st.want < st.last {
		t.Fatalf("%s is at %d and wants %d", st.topic, st.last, st.want)
	}
	if !st.known && (st.last != 0 || (st.want == 0) != (len(st.held) == 0)) {
		t.Fatalf("%s is not known, and is at %d of %d with %d held", st.topic, st.last, st.want, len(st.held))
	}
}

// Whatever becomes of several topics that share what is kept of them: what is kept is bounded, and
// each loop has each message that is still retained, once and in order.
func TestWhateverBecomesOfTopics(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 2, Config{HeldMessages: 3, HeldBytes: 12, RingMessages: 4, RingTopicBytes: 14, RingBytes: 24})
		names := []string{"a", "b", "c", "d"}
		for i, name := range names {
			b.join(i%2, name, 1, 0)
		}
		b.join(0, "d", 1, 0)
		steps := []string{"publish", "publish", "publish", "late", "time", "head", "room", "away", "retain", "epoch", "recent"}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "topic")
			l := b.log[name]
			switch rapid.SampledFrom(steps).Draw(rt, "step") {
			case "publish":
				l.head++
				if rapid.IntRange(0, 3).Draw(rt, "arrives") > 0 {
					b.deliver(name, l.epoch, l.head)
				}
			case "late":
				if l.head > 0 {
					b.deliver(name, l.epoch, rapid.Uint64Range(1, l.head).Draw(rt, "seq"))
				}
			case "time":
				b.pass(time.Duration(rapid.IntRange(1, 30).Draw(rt, "ms")) * time.Millisecond)
			case "head":
				b.head(name)
			case "room":
				loop := rapid.IntRange(0, 1).Draw(rt, "loop")
				b.full[loop] = !b.full[loop]
				b.Resend(b.post)
			case "away":
				b.away = !b.away
			case "retain":
				l.oldest = rapid.Uint64Range(l.oldest, l.head+1).Draw(rt, "oldest")
			case "epoch":
				b.log[name] = &log{epoch: l.epoch + 1, oldest: 1}
			case "recent":
				from := rapid.Uint64Range(0, l.head+2).Draw(rt, "from")
				if r, ok := b.Recent(name, 0, from, 0, 0); ok && (r.Epoch > l.epoch || r.Messages[0].Seq != from || r.Messages[len(r.Messages)-1].Seq != r.Head) {
					rt.Fatalf("%s from %d: %+v", name, from, r)
				}
			}
			b.check(rt)
		}
		clear(b.full)
		b.away = false
		for range 3 {
			for _, name := range names {
				b.head(name)
			}
			b.pass(3 * time.Second)
			b.Resend(b.post)
			b.check(rt)
		}
		if _, due := b.Next(); due || b.Owing() {
			rt.Fatalf("it does not come to rest")
		}
		for loop, got := range b.got {
			b.inOrder(rt, loop, got)
		}
	})
}

// inOrder sees to it that what a loop got is each topic's messages in order, and that those that
// are missing are no longer retained, or were passed over with a hole that the loop sees.
func (b *bench) inOrder(t *rapid.T, loop int, got []*exchange.Message) {
	last := map[string]*exchange.Message{}
	for _, m := range got {
		before := last[m.Topic]
		if before != nil && (m.Epoch < before.Epoch || m.Epoch == before.Epoch && m.Seq <= before.Seq) {
			t.Fatalf("loop %d got %s/%d/%d behind %d/%d", loop, m.Topic, m.Epoch, m.Seq, before.Epoch, before.Seq)
		}
		last[m.Topic] = m
	}
	for name, l := range b.log {
		if b.exact[name]&(1<<loop) == 0 || l.oldest > l.head {
			continue
		}
		if m := last[name]; m == nil || m.Epoch != l.epoch || m.Seq != l.head {
			t.Fatalf("loop %d has %v of %s as the last, whose log is %+v", loop, m, name, *l)
		}
	}
}

// What a hole has lost to retention is passed over; the rest comes, and what is kept of it answers
// reads.
func TestRetentionTakesAPartOfAHole(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 0)
	b.deliver("a", 1, 1, 2, 3, 4)
	b.want(0, "a/1/1 a/1/2 a/1/3 a/1/4")
	b.log["a"] = &log{epoch: 1, head: 9, oldest: 7}
	b.deliver("a", 1, 9)
	b.pass(20 * time.Millisecond)
	b.want(0, "a/1/7 a/1/8 a/1/9")
	b.check(t)
	for from, want := range map[uint64]int{3: 0, 6: 0, 7: 3, 9: 1} {
		r, ok := b.Recent("a", 1, from, 0, 0)
		if ok != (want > 0) || len(r.Messages) != want || ok && r.Messages[0].Seq != from {
			t.Errorf("from %d: %v", from, r.Messages)
		}
	}
}

// Beyond the budget the topics that were quiet longest lose their recent messages, one after the
// other.
func TestTheQuietestTopicsLoseTheirRecentMessages(t *testing.T) {
	b := newBench(t, 1, Config{RingBytes: 12}) // four messages of three bytes
	kept := func() (out string) {
		b.check(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			if st := b.topics[name]; st != nil && len(st.ring) > 0 {
				out += fmt.Sprint(name, len(st.ring), " ")
			}
		}
		return out
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		b.join(0, name, 1, 0)
	}
	for _, c := range []struct {
		topic string
		seq   uint64
		want  string
	}{
		{"a", 1, "a1 "},
		{"b", 1, "a1 b1 "},
		{"c", 1, "a1 b1 c1 "},
		{"a", 2, "a2 b1 c1 "},
		{"d", 1, "a2 c1 d1 "},
		{"d", 2, "a2 d2 "},
		{"b", 2, "b1 d2 "},
		{"b", 3, "b2 d2 "},
		{"c", 2, "b2 c1 "},
		{"c", 3, "b2 c2 "},
		{"a", 3, "a1 c2 "},
	} {
		if b.deliver(c.topic, 1, c.seq); kept() != c.want {
			t.Fatalf("after %s/%d: %s, want %s", c.topic, c.seq, kept(), c.want)
		}
	}
	b.Remove(0, "c")
	b.Remove(0, "a")
	if kept() != "" || b.recent.bytes != 0 {
		t.Errorf("%s are kept, %d bytes", kept(), b.recent.bytes)
	}
	b.log["a"].head = 9
	b.join(0, "a", 1, 9)
	if b.deliver("a", 1, 10); kept() != "a1 " {
		t.Errorf("kept: %s", kept())
	}
}

// A topic's recent messages are bounded in bytes, however many come.
func TestRecentMessagesOfATopicAreBoundedInBytes(t *testing.T) {
	b := newBench(t, 1, Config{RingTopicBytes: 10})
	b.join(0, "a", 1, 0)
	for seq := uint64(1); seq <= 50; seq++ {
		b.deliver("a", 1, seq)
		b.check(t)
		if n := len(b.topics["a"].ring); n != int(min(seq, 3)) && seq < 10 || n == 0 || n > 3 {
			t.Fatalf("after %d: %d messages", seq, n)
		}
	}
	large := message("a", 1, 51)
	large.Frame = make([]byte, 11) // no room at all
	b.Deliver(b.now, large)
	b.turn()
	if _, ok := b.Recent("a", 1, 51, 0, 0); ok || b.topics["a"].size != 0 {
		t.Error("a message beyond the bound is kept")
	}
	b.deliver("a", 1, 52)
	if r, ok := b.Recent("a", 1, 52, 0, 0); !ok || len(r.Messages) != 1 {
		t.Errorf("%+v", r)
	}
	b.check(t)
}

// A hole is read when its own hold is over, whatever waits for a failed read of another topic.
func TestAHoleIsReadInTimeBesideAFailedRead(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 0)
	b.join(0, "b", 1, 0)
	b.log["a"].head, b.away = 2, true
	b.deliver("a", 1, 2)
	b.pass(30 * time.Millisecond) // the read failed, and waits 500 ms for the next
	b.away = false
	b.log["b"].head = 2
	b.deliver("b", 1, 2)
	if at, due := b.Next(); !due || at.Sub(b.now) != 20*time.Millisecond {
		t.Errorf("next in %v, %v", at.Sub(b.now), due)
	}
	b.pass(19 * time.Millisecond)
	b.want(0, "")
	b.pass(time.Millisecond)
	b.want(0, "b/1/1 b/1/2")
	if at, due := b.Next(); !due || at.Sub(b.now) != 470*time.Millisecond {
		t.Errorf("next in %v, %v", at.Sub(b.now), due)
	}
	b.pass(500 * time.Millisecond)
	b.want(0, "a/1/1 a/1/2")
	if _, due := b.Next(); due {
		t.Error("something is due, and nothing is missing")
	}
}

// What a topic has held back, and let go of, leaves room for what it holds back next.
func TestHeldBytesAreGivenBack(t *testing.T) {
	b := newBench(t, 1, Config{HeldBytes: 12})
	b.join(0, "a", 1, 0)
	for round := range uint64(5) {
		first := 1 + 5*round
		b.log["a"].head = first + 4
		b.deliver("a", 1, first+1, first+2, first+3)
		b.check(t)
		b.deliver("a", 1, first)
		b.pass(20 * time.Millisecond) // the fifth is read
		b.head("a")
		b.pass(20 * time.Millisecond)
		if n := len(b.got[0]); n != 5 {
			t.Fatalf("round %d: %d messages", round, n)
		}
		b.got[0] = nil
	}
	if n := b.Stats().HeldDropped.Load(); n != 0 {
		t.Errorf("%d were dropped", n)
	}
	b.deliver("a", 1, 30, 29, 28, 27) // the newest goes
	if held := b.topics["a"].held; b.Stats().HeldDropped.Load() == 0 || held[0].Seq != 27 || slices.ContainsFunc(held, func(m *exchange.Message) bool { return m.Seq == 30 }) {
		t.Errorf("%d are held, from %d", len(held), held[0].Seq)
	}
	b.check(t)
}
