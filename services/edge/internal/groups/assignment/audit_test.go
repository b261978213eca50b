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
		for _, ask := range c.Asks(now) {
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
	for _, h := range c.Holders(50e9) {
		has[h.Member] = h.Has
	}
	if has[a] != 2 || has[b] != 1 {
		t.Errorf("members have %v", has)
	}
	if got := c.Asks(49e9); len(got) > 0 {
		t.Errorf("asked %v, who were given something not long ago, or have been asked", got)
	}
}

// One that has nothing is asked, too, once a minute: it might be no member.
func TestWhoHasNothingIsAsked(t *testing.T) {
	c := started(t, Config{}, "t", 1, head("t", 0))
	n := 0
	for now := int64(1); now <= 3*askAnyway; now += auditEvery {
		for _, ask := range c.Asks(now) {
			if n++; ask.Turn != 1 {
				t.Errorf("asked as of turn %d", ask.Turn)
			}
		}
	}
	if n != 2 {
		t.Errorf("asked %d times in 3 minutes", n)
	}
}
