package assignment

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A group comes to stand 65,536 messages behind one that its members let time out, and goes on once
// that is a dead letter.
func TestAGroupDoesNotStandStillForGood(t *testing.T) {
	const most = cursor.Span + 500
	c := New(Config{MaxAttempts: func(string) uint32 { return attempts }, User: "u", Session: "s"})
	c.Advance(1, 1)
	c.Begin(&Begin{Filter: "a", Start: exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST}, Heads: []exchange.Head{{Topic: "a", Epoch: epoch, Head: most, Oldest: 1}}})
	for id := range uint64(2) {
		c.Join(MemberID{Edge: "e", ID: id}, &meshv1.GroupJoin{Window: 100})
	}
	seen, stood := map[uint64]bool{}, false
	var late []Assignment
	for idle := 0; len(seen) < most; {
		out := c.Take()
		for _, r := range out.Reads {
			rng := &exchange.Range{Topic: "a", From: r.From, Epoch: epoch, Head: most, Oldest: 1}
			for seq := r.From; seq < r.From+500 && seq <= most; seq++ {
				rng.Messages = append(rng.Messages, message("a", seq, ""))
			}
			c.Range(rng)
		}
		for _, a := range out.Assigned {
			seen[a.Message.Seq] = true
			if a.Message.Seq == 1 {
				late = append(late, a)
				continue
			}
			c.Settle(a.Member, &meshv1.GroupSettle{Topic: "a", Epoch: epoch, Seq: a.Message.Seq, How: meshv1.GroupSettle_HOW_ACKED})
		}
		if len(out.Reads)+len(out.Assigned) > 0 {
			idle = 0
			continue
		}
		if idle++; idle > 10 {
			t.Fatalf("it stands still behind %d messages", len(seen))
		}
		stood = stood || len(seen) == cursor.Span
		for _, a := range late { // ack_timeout
			c.Settle(a.Member, &meshv1.GroupSettle{Topic: "a", Epoch: epoch, Seq: 1, How: meshv1.GroupSettle_HOW_TIMEOUT})
		}
		late = nil
	}
	if _, letters := c.Save(false); !stood || len(letters) != 1 || letters[0].GetSeq() != 1 {
		t.Fatalf("it stood still: %v, dead letters %v", stood, letters)
	}
}
