package assignment

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Who has had a message for long is asked, again when that time has doubled, and what it does not
// name goes to others, but for what it was given after it was asked.
func TestWhoHasAMessageForLongIsAsked(t *testing.T) {
	a, b := member1(0), member1(1)
	c := started(t, Config{}, "t", 1, head("t", 0))
	c.Live(run("t", 1, 2))
	if got := c.Take().Assigned; len(got) != 2 {
		t.Fatalf("assigned: %v", got)
	}
	var asks []Ask
	for now := int64(1); now <= 45e9; now += auditEvery {
		c.Advance(now, 1)
		got, again := c.Asks(now)
		if again < now+auditEvery {
			t.Fatalf("looked for again at %d, at %d", again, now)
		}
		for _, ask := range got {
			if asks = append(asks, ask); ask.Member != a || ask.Turn != 3 {
				t.Errorf("%v is asked", ask)
			}
		}
	}
	if len(asks) != 4 { // after 5, 10, 20 and 40 s
		t.Fatalf("asked: %v", asks)
	}
	c.Live(run("t", 3, 3))
	c.Take()
	c.Join(b, &meshv1.GroupJoin{Window: 10})
	c.Join(a, &meshv1.GroupJoin{Window: 10, Asked: 3, Held: []*meshv1.GroupHeld{{Topic: "t", Epoch: epoch, Seq: 2}}})
	got := c.Take().Assigned
	if len(got) != 1 || got[0].Message.Seq != 1 || got[0].Member != b || got[0].Attempt != 1 {
		t.Errorf("assigned again: %v", got)
	}
	has := map[MemberID]int{}
	for _, h := range c.Holders(50e9, 10) {
		has[h.Member] = h.Has
	}
	if has[a] != 2 || has[b] != 1 {
		t.Errorf("members have %v", has)
	}
	if got, _ := c.Asks(49e9); len(got) > 0 {
		t.Errorf("asked %v, who were given something not long ago, or have been asked", got)
	}
}

// One that has nothing is asked, too, once a minute: it might be no member.
func TestWhoHasNothingIsAsked(t *testing.T) {
	c := started(t, Config{}, "t", 1, head("t", 0))
	n := 0
	for now := int64(1); now <= 3*askAnyway; now += auditEvery {
		got, again := c.Asks(now)
		if again < now+auditEvery {
			t.Fatalf("looked for again at %d, at %d", again, now)
		}
		for _, ask := range got {
			if n++; ask.Turn != 1 {
				t.Errorf("asked as of turn %d", ask.Turn)
			}
		}
	}
	if n != 2 {
		t.Errorf("asked %d times in 3 minutes", n)
	}
}

// What members have is kept in the order in which it was given, whatever goes first.
func TestTheOldestOfAMember(t *testing.T) {
	c := started(t, Config{}, "t", 1, head("t", 0))
	for seq := uint64(1); seq <= 5; seq++ {
		c.Advance(int64(seq), 1)
		c.Live(run("t", seq, seq))
		c.Take()
	}
	for _, gone := range []uint64{1, 3, 5, 2, 4} {
		c.Settle(member1(0), &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: gone})
		m := c.members[member1(0)]
		var oldest *task
		n := 0
		for _, t := range c.places["t"].tasks {
			if n++; oldest == nil || t.turn < oldest.turn {
				oldest = t
			}
		}
		if m.tasks.first != oldest || m.tasks.n != n || (m.tasks.last == nil) != (n == 0) {
			t.Fatalf("after %d: %+v is the oldest of %d, not %+v", gone, m.tasks.first, n, oldest)
		}
	}
}
