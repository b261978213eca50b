package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

var start = time.UnixMicro(1_000_000)

// bench drives a feed: its clock, what each loop got, and a log to read from.
type bench struct {
	*Feed
	t    testing.TB
	now  time.Time
	got  [][]*exchange.Message
	full map[int]bool
	log  map[string]*log
	away bool
}

type log struct {
	epoch, head, oldest uint64
}

func newBench(t testing.TB, loops int, cfg Config) *bench {
	cfg.Loops = loops
	if cfg.Durable == nil {
		cfg.Durable = func(string) bool { return true }
	}
	return &bench{
		Feed: New(cfg), t: t, now: start, got: make([][]*exchange.Message, loops),
		full: map[int]bool{}, log: map[string]*log{},
	}
}

func message(topic string, epoch, seq uint64) *exchange.Message {
	return &exchange.Message{Topic: topic, Epoch: epoch, Seq: seq, Frame: []byte(fmt.Sprintf("%s %d", topic, seq))}
}

// turn posts what came out, and answers reads from the log.
func (b *bench) turn() {
	for {
		out, ok := b.Take()
		if !ok {
			return
		}
		for loop, run := range out.Loops {
			if len(run) > 0 && !b.post(loop, run) {
				b.Refused(loop, run)
			}
		}
		for _, r := range out.Reads {
			b.ReadDone(b.now, r, b.read(r))
		}
	}
}

func (b *bench) post(loop int, run []*exchange.Message) bool {
	if !b.full[loop] {
		b.got[loop] = append(b.got[loop], run...)
	}
	return !b.full[loop]
}

// read answers three messages at most, so that long holes take several reads.
func (b *bench) read(r Read) exchange.Range {
	l := b.log[r.Topic]
	if b.away || l == nil {
		return exchange.Range{Topic: r.Topic, Err: code.New(wirev1.Code_CODE_UNAVAILABLE, "away")}
	}
	out := exchange.Range{Topic: r.Topic, From: r.From, Epoch: l.epoch, Head: l.head, Oldest: l.oldest}
	if r.Epoch != l.epoch {
		out.Err = code.New(wirev1.Code_CODE_EPOCH_CHANGED, "gone")
		return out
	}
	for seq := max(r.From, l.oldest); seq <= min(r.To, l.head) && len(out.Messages) < 3; seq++ {
		out.Messages = append(out.Messages, message(r.Topic, l.epoch, seq))
	}
	return out
}

func (b *bench) deliver(topic string, epoch uint64, seqs ...uint64) {
	for _, seq := range seqs {
		b.Deliver(b.now, message(topic, epoch, seq))
	}
	b.turn()
}

func (b *bench) head(topic string) {
	l := b.log[topic]
	b.Head(b.now, exchange.Head{Topic: topic, Epoch: l.epoch, Head: l.head, Oldest: l.oldest})
	b.turn()
}

func (b *bench) pass(d time.Duration) {
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(time.Millisecond)
		b.Advance(b.now)
		b.Sweep(b.Len())
		b.turn()
	}
}

func (b *bench) want(loop int, want string) {
	b.t.Helper()
	var got []string
	for _, m := range b.got[loop] {
		got = append(got, fmt.Sprintf("%s/%d/%d", m.Topic, m.Epoch, m.Seq))
	}
	if s := fmt.Sprint(got); s != "["+want+"]" {
		b.t.Errorf("loop %d got %s, want [%s]", loop, s, want)
	}
	b.got[loop] = nil
}

// join makes loop want topic, whose head is known from then on.
func (b *bench) join(loop int, topic string, epoch, head uint64) {
	if b.log[topic] == nil {
		b.log[topic] = &log{epoch: epoch, head: head, oldest: 1}
	}
	b.Add(loop, topic)
	b.Expect(topic)
	b.head(topic)
	b.Expected(topic)
}

func TestOnlyLoopsThatWantATopicGetIt(t *testing.T) {
	b := newBench(t, 3, Config{})
	b.join(0, "a", 1, 0)
	b.join(1, "a", 1, 0)
	b.Add(2, "e/+")
	b.deliver("a", 1, 1)
	b.Deliver(b.now, message("e/x", 0, 0))
	b.deliver("nobody", 1, 1)
	b.want(0, "a/1/1")
	b.want(1, "a/1/1")
	b.want(2, "e/x/0/0")
	b.Remove(1, "a")
	b.deliver("a", 1, 2)
	b.want(0, "a/1/2")
	b.want(1, "")
	b.Remove(0, "a")
	b.deliver("a", 1, 3)
	b.want(0, "")
	if b.Len() != 0 || b.Stats().Unwanted.Load() != 2 {
		t.Errorf("%d topics are kept, %d unwanted", b.Len(), b.Stats().Unwanted.Load())
	}
}

func TestOutOfOrderIsHeldBackAndNotRead(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	b.deliver("a", 1, 6, 7)
	b.pass(10 * time.Millisecond)
	b.want(0, "")
	b.deliver("a", 1, 5)
	b.want(0, "a/1/5 a/1/6 a/1/7")
	b.pass(50 * time.Millisecond)
	b.deliver("a", 1, 5, 7)
	b.want(0, "")
	if b.Stats().Holes.Load() != 0 || b.Stats().Duplicates.Load() != 2 {
		t.Error("the log was read, or duplicates were not counted")
	}
}

func TestHoleIsReadAfterTheHold(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	b.log["a"].head = 12
	b.deliver("a", 1, 11)
	b.pass(19 * time.Millisecond)
	b.want(0, "")
	b.pass(time.Millisecond)
	b.want(0, "a/1/5 a/1/6 a/1/7 a/1/8 a/1/9 a/1/10 a/1/11")
}

func TestLostTailIsFoundByItsHead(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	b.log["a"].head = 6
	b.away = true
	b.head("a")
	b.pass(100 * time.Millisecond)
	b.want(0, "")
	b.away = false
	b.pass(500 * time.Millisecond)
	b.want(0, "a/1/5 a/1/6")
	if b.Stats().ReadErrors.Load() != 1 {
		t.Errorf("%d read errors", b.Stats().ReadErrors.Load())
	}
}

func TestNewEpochRestartsTheTopic(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	b.log["a"] = &log{epoch: 9, head: 2, oldest: 1}
	b.deliver("a", 9, 2)
	b.deliver("a", 1, 5)
	b.pass(20 * time.Millisecond)
	b.want(0, "a/9/1 a/9/2")
	b.log["a"] = &log{epoch: 10, head: 1, oldest: 1}
	b.head("a")
	b.pass(20 * time.Millisecond)
	b.want(0, "a/10/1")
	if b.Stats().Old.Load() != 1 {
		t.Error("the message of an old epoch was not counted")
	}
}

func TestEpochFoundGoneByARead(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	b.log["a"] = &log{epoch: 9, head: 2, oldest: 1}
	b.deliver("a", 1, 6)
	b.pass(40 * time.Millisecond)
	b.want(0, "a/9/1 a/9/2")
}

func TestMessagesBeforeTheHeadIsKnownAreHeld(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.log["a"] = &log{epoch: 1, head: 11, oldest: 1}
	b.Add(0, "a")
	b.Expect("a")
	b.deliver("a", 1, 12, 11)
	b.pass(100 * time.Millisecond)
	b.want(0, "")
	b.head("a")
	b.Expected("a")
	b.want(0, "a/1/12")
	if h := b.AheadHead(exchange.Head{Topic: "a", Epoch: 1, Head: 11}); h.Head != 12 {
		t.Errorf("head %d is behind what the loop got", h.Head)
	}
}

// A topic that is wanted turns durable: what comes from then on is handed on, though heads are
// compared before it is known where the topic began.
func TestATopicThatTurnsDurableLosesNothing(t *testing.T) {
	durable := false
	b := newBench(t, 1, Config{Durable: func(string) bool { return durable }})
	b.log["a"] = &log{epoch: 1, head: 9, oldest: 1}
	b.Add(0, "a")
	durable = true
	b.deliver("a", 1, 8, 9)
	b.head("a")
	b.want(0, "a/1/8 a/1/9")
	b.deliver("a", 1, 10)
	b.want(0, "a/1/10")
}

func TestUnknownHeadGivesWayToTheFirstMessage(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "a")
	b.Expect("a")
	b.deliver("a", 1, 12, 11)
	b.Expected("a")
	b.pass(20 * time.Millisecond)
	b.want(0, "a/1/11 a/1/12")
}

func TestTopicThatAppearsUnderAFilterIsOwedFromItsBeginning(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "r/+")
	since := b.Basing()
	b.Head(b.now, exchange.Head{Topic: "r/old", Epoch: 1, Head: 3, Oldest: 1})
	b.BasingDone(since)
	b.Based("r/+", b.Generation("r/+"))
	b.log["r/new"] = &log{epoch: 1, head: 3, oldest: 1}
	b.log["r/quiet"] = &log{epoch: 1, head: 1, oldest: 1}
	b.deliver("r/old", 1, 4)
	b.deliver("r/new", 1, 3)
	b.head("r/quiet")
	b.pass(20 * time.Millisecond)
	b.want(0, "r/old/1/4 r/new/1/1 r/new/1/2 r/new/1/3 r/quiet/1/1")
	b.Remove(0, "r/+")
	b.pass(sweepEvery)
	if b.Len() != 0 || b.IsBased("r/+") {
		t.Errorf("%d topics are kept", b.Len())
	}
}

func TestRetentionAndPhantomsEndTheWaiting(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 1, 4)
	b.log["a"] = &log{epoch: 1, head: 9, oldest: 9}
	b.deliver("a", 1, 9)
	b.pass(20 * time.Millisecond)
	b.want(0, "a/1/9")
	b.deliver("a", 1, 12) // the log knows nothing of 10 to 12
	b.pass(20*time.Millisecond + (emptyReads-1)*500*time.Millisecond)
	b.want(0, "a/1/12")
	if b.Stats().Phantoms.Load() != 1 {
		t.Errorf("%d phantoms", b.Stats().Phantoms.Load())
	}
}

func TestHeldMessagesAreBounded(t *testing.T) {
	b := newBench(t, 1, Config{HeldMessages: 3})
	b.join(0, "a", 1, 0)
	b.log["a"].head = 9
	b.deliver("a", 1, 2, 9, 3, 4, 5)
	if n := b.Stats().HeldDropped.Load(); n != 2 {
		t.Errorf("%d dropped", n)
	}
	b.deliver("a", 1, 1)
	b.want(0, "a/1/1 a/1/2 a/1/3 a/1/4")
	b.pass(20 * time.Millisecond)
	b.want(0, "a/1/5 a/1/6 a/1/7 a/1/8 a/1/9")
}

func TestRefusedRunComesAgainBeforeAnythingNewer(t *testing.T) {
	b := newBench(t, 2, Config{RingMessages: 3})
	b.join(0, "a", 1, 0)
	b.join(1, "a", 1, 0)
	b.full[0] = true
	b.deliver("a", 1, 1)
	b.full[0] = false
	b.deliver("a", 1, 2)
	b.want(0, "")
	b.want(1, "a/1/1 a/1/2")
	b.Resend(b.post)
	b.want(0, "a/1/1 a/1/2")
	b.full[0] = true
	b.deliver("a", 1, 3)
	b.deliver("a", 1, 4, 5, 6, 7)
	b.Resend(b.post)
	b.full[0] = false
	b.Resend(b.post)
	b.want(0, "a/1/7") // 3 is no longer at hand: the last one shows the hole
	b.deliver("a", 1, 8)
	b.want(0, "a/1/8")
	if b.Owing() {
		t.Error("still owing")
	}
}

func TestRecentMessagesServeReads(t *testing.T) {
	b := newBench(t, 1, Config{RingMessages: 4, RingBytes: 20})
	b.join(0, "a", 1, 0)
	b.deliver("a", 1, 1, 2, 3, 4, 5)
	if _, ok := b.Recent("a", 1, 1, 0, 0); ok {
		t.Error("1 is still there")
	}
	for _, c := range []struct {
		epoch, from, to uint64
		max, n          int
		ok              bool
	}{{1, 2, 0, 0, 4, true}, {0, 3, 4, 0, 2, true}, {1, 2, 0, 6, 2, true}, {1, 2, 0, 1, 1, true}, {2, 2, 0, 0, 0, false}, {1, 6, 0, 0, 0, false}} {
		r, ok := b.Recent("a", c.epoch, c.from, c.to, c.max)
		if ok != c.ok || len(r.Messages) != c.n || ok && (r.Head != 5 || r.Messages[0].Seq != c.from) {
			t.Errorf("%+v: %v %+v", c, ok, r)
		}
	}
	b.join(0, "b", 1, 0)
	b.deliver("b", 1, 1, 2, 3, 4) // together beyond 20 bytes: a, the quieter one, goes
	if _, ok := b.Recent("a", 1, 5, 0, 0); ok {
		t.Error("a is still there")
	}
	if _, ok := b.Recent("b", 1, 1, 0, 0); !ok {
		t.Error("b is gone")
	}
	if b.recent.bytes > 20 {
		t.Errorf("%d bytes are kept", b.recent.bytes)
	}
}

func TestRangesAreNeverBehindWhatWasSent(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.join(0, "a", 5, 0)
	b.deliver("a", 5, 1, 2)
	if r := b.Ahead(exchange.Range{Topic: "a", Epoch: 5, Head: 1}); r.Head != 2 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if r := b.Ahead(exchange.Range{Topic: "a", Epoch: 4, Head: 7}); code.Of(r.Err) != wirev1.Code_CODE_EPOCH_CHANGED || r.Epoch != 5 {
		t.Errorf("%+v", r)
	}
}

// Whatever is lost, doubled, reordered or refused: after heads were compared every loop has every
// message once, in order.
func TestNothingIsLostDoubledOrReordered(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 2, Config{HeldMessages: 4, RingMessages: 1 << 10})
		base := rapid.Uint64Range(0, 5).Draw(rt, "base")
		b.join(0, "a", 1, base)
		b.join(1, "a", 1, base)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			l := b.log["a"]
			switch rapid.SampledFrom([]string{"publish", "late", "time", "head", "room", "away"}).Draw(rt, "step") {
			case "publish":
				l.head++
				if rapid.Bool().Draw(rt, "arrives") {
					b.deliver("a", 1, l.head)
				}
			case "late":
				if l.head > 0 {
					b.deliver("a", 1, rapid.Uint64Range(1, l.head).Draw(rt, "seq"))
				}
			case "time":
				b.pass(time.Duration(rapid.IntRange(1, 30).Draw(rt, "ms")) * time.Millisecond)
			case "head":
				b.head("a")
			case "room":
				loop := rapid.IntRange(0, 1).Draw(rt, "loop")
				b.full[loop] = !b.full[loop]
				b.Resend(b.post)
			case "away":
				b.away = !b.away
			}
		}
		clear(b.full)
		b.away = false
		b.head("a")
		b.pass(time.Second)
		b.Resend(b.post)
		for loop, got := range b.got {
			var seqs, want []uint64
			for _, m := range got {
				seqs = append(seqs, m.Seq)
			}
			for seq := base + 1; seq <= b.log["a"].head; seq++ {
				want = append(want, seq)
			}
			if !slices.Equal(seqs, want) {
				rt.Fatalf("loop %d got %v, want %v", loop, seqs, want)
			}
		}
	})
}
