package assignment

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// started makes a core of a new group that begins live, with members 1 to n.
func started(t *testing.T, cfg Config, filter string, n int, heads ...exchange.Head) *Core {
	t.Helper()
	if cfg.MaxAttempts == nil {
		cfg.MaxAttempts = func(string) uint32 { return attempts }
	}
	c := New(cfg)
	c.Advance(1, 1)
	c.Begin(&Begin{Filter: filter, Heads: heads})
	for i := range n {
		c.Join(member1(i), &meshv1.GroupJoin{Window: 100})
	}
	return c
}

func member1(i int) MemberID { return MemberID{"e", uint64(i + 1)} }

func head(topic string, n uint64) exchange.Head {
	return exchange.Head{Topic: topic, Epoch: epoch, Head: n, Oldest: 1}
}

func run(topic string, from, to uint64) (msgs []*exchange.Message) {
	for seq := from; seq <= to; seq++ {
		msgs = append(msgs, message(topic, seq, ""))
	}
	return msgs
}

func TestLoadIsSpread(t *testing.T) {
	c := started(t, Config{}, "t", 4, head("t", 0))
	c.Live(run("t", 1, 40))
	got := map[MemberID]int{}
	for _, a := range c.Take().Assigned {
		got[a.Member]++
	}
	for i := range 4 {
		if got[member1(i)] != 10 {
			t.Errorf("member %d got %d of 40 messages", i, got[member1(i)])
		}
	}
}

func TestATimeoutGoesToAnother(t *testing.T) {
	c := started(t, Config{}, "t", 2, head("t", 0))
	c.Live(run("t", 1, 1))
	first := c.Take().Assigned[0]
	c.Settle(first.Member, &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1, How: meshv1.GroupSettle_HOW_TIMEOUT})
	again := c.Take().Assigned
	if len(again) != 1 || again[0].Member == first.Member || again[0].Attempt != 1 {
		t.Fatalf("%v after %v", again, first)
	}
	// One that was never sent was no attempt, and an ACK that comes late counts.
	c.Settle(again[0].Member, &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1, How: meshv1.GroupSettle_HOW_UNSENT})
	third := c.Take().Assigned
	if len(third) != 1 || third[0].Attempt != 1 {
		t.Fatal(third)
	}
	c.Settle(first.Member, &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1})
	if cur, _ := c.Save(true); len(cur) != 1 || cur[0].GetFloor() != 1 || c.Waiting() != 0 {
		t.Fatal(cur)
	}
}

// When one of ten members goes, the keys of the others stay where they are; when it comes back, it
// takes about a tenth.
func TestFewKeysMove(t *testing.T) {
	const members, keys = 10, 2000
	c := started(t, Config{Key: "topic"}, "#", members)
	where := func() map[string]MemberID {
		at := map[string]MemberID{}
		for i := range keys {
			k := fmt.Sprint(i)
			at[k] = c.ownerOf(&lane{key: k, hash: hash(k)}).id
		}
		return at
	}
	before := where()
	each := map[MemberID]int{}
	for _, m := range before {
		each[m]++
	}
	for m, n := range each {
		if n < keys/members/2 || n > keys/members*2 {
			t.Errorf("%v has %d of %d keys", m, n, keys)
		}
	}
	gone := member1(3)
	c.Leave(gone)
	for k, m := range where() {
		if before[k] != gone && before[k] != m {
			t.Fatalf("key %s moved from %v to %v, and %v left", k, before[k], m, gone)
		}
	}
	c.Join(gone, &meshv1.GroupJoin{Window: 1})
	for k, m := range where() {
		if before[k] != m {
			t.Fatalf("key %s is with %v, was with %v", k, m, before[k])
		}
	}
}

func TestAKeyWaitsWhileItMoves(t *testing.T) {
	c := started(t, Config{Key: "header:k"}, "t", 1, head("t", 0))
	c.Live([]*exchange.Message{message("t", 1, "x")})
	if a := c.Take().Assigned; len(a) != 1 {
		t.Fatal(a)
	}
	joined := 1
	for k := (&lane{key: "=x", hash: hash("=x")}); c.ownerOf(k).id == member1(0); joined++ {
		c.Join(member1(joined), &meshv1.GroupJoin{Window: 10})
	}
	c.Live([]*exchange.Message{message("t", 2, "x")})
	if a := c.Take().Assigned; len(a) != 0 {
		t.Fatalf("%v, while the key is with another", a)
	}
	c.Settle(member1(0), &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1})
	if a := c.Take().Assigned; len(a) != 1 || a[0].Member == member1(0) || a[0].Attempt != 0 {
		t.Fatal(a)
	}
}

func TestEphemeralMessagesGoToOneMember(t *testing.T) {
	for _, k := range []string{"", "topic"} {
		c := started(t, Config{Key: k}, "t", 0)
		c.Live(run("t", 0, 0))
		if s := c.Stats(); s.NoMember != 1 || len(c.Take().Assigned) != 0 {
			t.Fatalf("without members: %+v", s)
		}
		for i := range 3 {
			c.Join(member1(i), &meshv1.GroupJoin{Window: 1})
		}
		got := map[MemberID]int{}
		for range 30 {
			c.Live(run("t", 0, 0))
		}
		out := c.Take().Assigned
		for _, a := range out {
			got[a.Member]++
		}
		if len(out) != 30 || k == "" && len(got) != 3 || k != "" && len(got) != 1 {
			t.Errorf("key %q: %v", k, got)
		}
	}
}

func TestANewGroupBeginsWhereItsFirstMemberSays(t *testing.T) {
	for _, s := range []struct {
		start exchange.GroupStart
		want  uint64
	}{
		{exchange.GroupStart{}, 10},
		{exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST}, 3},
		{exchange.GroupStart{Mode: wirev1.Start_START_LAST_N, Seq: 2}, 8},
		{exchange.GroupStart{Mode: wirev1.Start_START_LAST_N, Seq: 99}, 3},
		{exchange.GroupStart{Mode: wirev1.Start_START_AFTER_SEQ, Seq: 5}, 5},
		{exchange.GroupStart{Mode: wirev1.Start_START_AFTER_SEQ, Seq: 1}, 3},
		{exchange.GroupStart{Mode: wirev1.Start_START_AFTER_SEQ, Seq: 5, Epoch: 7}, 3},
		{exchange.GroupStart{Mode: wirev1.Start_START_AFTER_SEQ, Positions: []*wirev1.Position{{Topic: "t", Seq: 6}}}, 6},
		{exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST, Positions: []*wirev1.Position{{Topic: "t", Seq: 6}}}, 6},
		{exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST, Positions: []*wirev1.Position{{Topic: "u", Seq: 6}}}, 3},
		{exchange.GroupStart{Mode: wirev1.Start_START_LAST_N, Seq: 2, Positions: []*wirev1.Position{{Topic: "t", Epoch: 7, Seq: 6}}}, 3},
		{exchange.GroupStart{Mode: wirev1.Start_START_AFTER_SEQ, Positions: []*wirev1.Position{{Topic: "u", Seq: 6}}}, 10},
	} {
		c := New(Config{MaxAttempts: func(string) uint32 { return attempts }})
		c.Begin(&Begin{Filter: "t", Heads: []exchange.Head{{Topic: "t", Epoch: epoch, Head: 10, Oldest: 4}}, Start: s.start})
		if got, _ := c.Save(false); len(got) != 1 || got[0].GetFloor() != s.want {
			t.Errorf("%+v: %v, want floor %d", s.start, got, s.want)
		}
	}
}

func TestRetentionAndNewEpochs(t *testing.T) {
	c := started(t, Config{}, "t", 1, head("t", 0))
	c.Live([]*exchange.Message{message("t", 9, "")})
	if r := c.Take().Reads; len(r) != 1 || r[0].From != 1 {
		t.Fatal(r)
	}
	c.Range(&exchange.Range{Topic: "t", From: 1, Epoch: epoch, Head: 9, Oldest: 8, Messages: run("t", 8, 9)})
	if a := c.Take().Assigned; len(a) != 2 || c.Stats().Missed != 7 {
		t.Fatalf("%v, %+v", a, c.Stats())
	}
	m := message("t", 1, "")
	m.Epoch = epoch + 1
	c.Live([]*exchange.Message{m})
	if a := c.Take().Assigned; len(a) != 1 || a[0].Message != m {
		t.Fatal(a)
	}
	// of a log that is gone
	c.Settle(member1(0), &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 9})
	if cur, _ := c.Save(true); len(cur) != 1 || cur[0].GetEpoch() != epoch+1 || cur[0].GetFloor() != 0 {
		t.Fatal(cur)
	}
}

func TestWhatExpiredIsADeadLetter(t *testing.T) {
	c := started(t, Config{}, "t", 1, head("t", 0))
	m := message("t", 1, "")
	m.ExpiresAt = 5
	c.Advance(2, 6)
	c.Live([]*exchange.Message{m})
	if out := c.Take(); len(out.Assigned) != 0 {
		t.Fatalf("%+v", out)
	}
	if _, l := c.Save(false); len(l) != 1 || l[0].GetReason() != wirev1.Code_CODE_EXPIRED {
		t.Fatal(l)
	}
}

// A position that says of a dead letter that it is settled would lose it, if it were stored without
// the letter.
func TestALetterIsStoredWithItsPosition(t *testing.T) {
	c := started(t, Config{}, "t", 1, head("t", 0))
	c.Live(run("t", 1, 1))
	c.Save(false)
	for range attempts {
		if a := c.Take().Assigned; len(a) != 1 {
			t.Fatal(a)
		}
		c.Settle(member1(0), &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1, How: meshv1.GroupSettle_HOW_NACKED})
		cur, l := c.Save(false)
		if settled := len(cur) == 1 && cur[0].GetFloor() == 1; settled != (len(l) == 1) || settled && c.Changed() {
			t.Fatalf("%v with %v", cur, l)
		}
	}
	if c.Waiting() != 0 {
		t.Fatal("no dead letter")
	}
}

func TestTooManyTopicsEndTheGroup(t *testing.T) {
	c := started(t, Config{Topics: 2}, "#", 1, head("a", 0), head("b", 0))
	c.Live(run("c", 1, 1))
	if c.Take().Over != wirev1.Code_CODE_TOO_MANY_TOPICS {
		t.Error("a third topic is taken")
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	c := started(t, Config{QueueMessages: 10}, "t", 0, head("t", 0))
	c.Live(run("t", 1, 5))
	if c.Waiting() != 0 {
		t.Fatal("something is queued for nobody")
	}
	c.Join(member1(0), &meshv1.GroupJoin{Window: 1})
	if r := c.Take().Reads; len(r) != 1 || r[0].From != 1 {
		t.Fatal(r)
	}
	c.Range(&exchange.Range{Topic: "t", From: 1, Epoch: epoch, Head: 50, Oldest: 1, Messages: run("t", 1, 50)})
	if out := c.Take(); c.Waiting() != 9 || len(out.Assigned) != 1 || len(out.Reads) != 0 {
		t.Fatalf("%d wait, %+v", c.Waiting(), out)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(message("t", 1, "v").Body(), "k")
	f.Add([]byte{0x32, 0x02, 0x0a, 0x00}, "")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		v, ok := header(body, name)
		if !ok && v != "" {
			t.Errorf("%q of nothing", v)
		}
	})
}

func BenchmarkAssignAndACK(b *testing.B) {
	for _, k := range []string{"", "header:k"} {
		b.Run("key "+k, func(b *testing.B) {
			c := New(Config{Key: k, MaxAttempts: func(string) uint32 { return attempts }})
			c.Begin(&Begin{Filter: "t", Heads: []exchange.Head{head("t", 0)}})
			for i := range 100 {
				c.Join(member1(i), &meshv1.GroupJoin{Window: 64})
			}
			seq := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				seq++
				c.Live([]*exchange.Message{message("t", seq, fmt.Sprint(seq%1000))})
				for _, a := range c.Take().Assigned {
					c.Settle(a.Member, &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: a.Message.Seq})
				}
			}
		})
	}
}

// While the memory of all groups is used up a group has one message at a time, and goes on once it
// is not.
func TestOneMessageAtATimeWithoutMemory(t *testing.T) {
	full := true
	c := started(t, Config{Full: func() bool { return full }}, "t", 1, head("t", 0))
	before := c.Memory()
	c.Live(run("t", 1, 5))
	if out := c.Take(); len(out.Assigned) != 1 || len(out.Reads) != 0 || !c.Starved() || c.Starved() {
		t.Fatalf("%+v", out)
	}
	if c.Memory() <= before {
		t.Errorf("%d bytes are kept, %d before", c.Memory(), before)
	}
	full = false
	if out := c.Take(); len(out.Reads) != 1 || out.Reads[0].From != 2 || c.Starved() {
		t.Fatalf("%+v", out)
	}
	c.Range(&exchange.Range{Topic: "t", From: 2, Epoch: epoch, Head: 5, Oldest: 1, Messages: run("t", 2, 5)})
	if out := c.Take(); len(out.Assigned) != 4 {
		t.Fatalf("%+v", out)
	}
}
