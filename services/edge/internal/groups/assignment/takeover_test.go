package assignment

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// after makes the core that follows one that died, with members 1 to n.
func after(cursors []*meshv1.SessionCursor, n int, heads ...exchange.Head) *Core {
	c := New(Config{MaxAttempts: func(string) uint32 { return attempts }})
	c.Advance(1, 1)
	c.Begin(&Begin{
		Filter: "#", Heads: heads, Resumed: true, Unclean: true, Cursors: cursors, Start: exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST},
	})
	for i := range n {
		c.Join(member1(i), &meshv1.GroupJoin{Window: 100})
	}
	return c
}

// logs answers what a core reads of a topic with n messages.
func logs(c *Core, topic string, n uint64) (all []Assignment) {
	for {
		out := c.Take()
		all = append(all, out.Assigned...)
		if len(out.Reads) == 0 {
			return all
		}
		for _, r := range out.Reads {
			c.Range(&exchange.Range{Topic: topic, From: r.From, Epoch: epoch, Head: n, Oldest: 1, Messages: run(topic, r.From, n)})
		}
	}
}

// wantAttempts says with which attempt each seq was assigned, once each; none is missing.
func wantAttempts(t *testing.T, got []Assignment, want map[uint64]uint32) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, a := range got {
		n, expected := want[a.Message.Seq]
		if !expected || seen[a.Message.Seq] || n != a.Attempt {
			t.Errorf("seq %d came with attempt %d (before: %v), want %v", a.Message.Seq, a.Attempt, seen[a.Message.Seq], want)
		}
		seen[a.Message.Seq] = true
	}
	if len(seen) != len(want) {
		t.Errorf("came: %v, want %v", seen, want)
	}
}

// A topic that appeared since positions were stored last has none: what the dead dispatcher
// assigned of it comes again, and says so.
func TestTopicsWithoutStoredPosition(t *testing.T) {
	c := after(nil, 1, head("t", 3))
	got := logs(c, "t", 3)
	c.Live(run("t", 4, 4))
	wantAttempts(t, append(got, c.Take().Assigned...), map[uint64]uint32{1: 1, 2: 1, 3: 1, 4: 0})
}

// A topic may be found late. Where its position is stored, that counts.
func TestTopicsThatWereNotFoundAtFirst(t *testing.T) {
	c := after([]*meshv1.SessionCursor{{Topic: "t", Epoch: epoch, Floor: 2, Acked: []uint64{4, 4}}}, 1)
	c.Live(run("t", 6, 6))
	wantAttempts(t, logs(c, "t", 6), map[uint64]uint32{3: 1, 5: 1, 6: 0})

	// of a log that is gone
	c = after([]*meshv1.SessionCursor{{Topic: "t", Epoch: epoch - 1, Floor: 2}}, 1)
	c.Live(run("t", 2, 2))
	wantAttempts(t, logs(c, "t", 2), map[uint64]uint32{1: 1, 2: 0})
}

// A head that is older than the position does not set the group back.
func TestAnOldHeadDoesNotSetTheGroupBack(t *testing.T) {
	c := after([]*meshv1.SessionCursor{{Topic: "t", Epoch: epoch, Floor: 5}}, 1, head("t", 3))
	got := logs(c, "t", 3)
	c.Live(run("t", 7, 7))
	wantAttempts(t, append(got, logs(c, "t", 7)...), map[uint64]uint32{6: 0, 7: 0})
}

// Edges and dispatchers that die make no dead letters: a member has to have said that it can't,
// once at least.
func TestWhatNobodyMayHaveSeenIsNoDeadLetter(t *testing.T) {
	c := started(t, Config{}, "#", 0)
	c.Live(run("t", 1, 1))
	edge := member1(0).Edge
	for i := range 3 * attempts {
		c.Join(member1(i), &meshv1.GroupJoin{Window: 1})
		if got := logs(c, "t", 1); len(got) != 1 || got[0].Attempt != min(uint32(i), attempts-1) {
			t.Fatalf("after %d edges: %v", i, got)
		}
		c.LeaveEdge(edge)
	}
	cursors := []*meshv1.SessionCursor{}
	for i := range 3 * attempts {
		c.Join(member1(0), &meshv1.GroupJoin{Window: 1})
		if got := logs(c, "t", 1); len(got) != 1 || got[0].Attempt != attempts-1 {
			t.Fatalf("after %d dispatchers: %v", i, got)
		}
		cursors, _ = c.Save(true)
		c = after(cursors, 0, head("t", 1))
	}
	c.Join(member1(0), &meshv1.GroupJoin{Window: 1})
	logs(c, "t", 1)
	c.Settle(member1(0), &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1, How: meshv1.GroupSettle_HOW_NACKED})
	if _, l := c.Save(false); len(l) != 1 || l[0].GetAttempts() != attempts {
		t.Fatalf("%v of %v", l, cursors)
	}
}

// What a member has goes on as the same attempt under the next dispatcher, though the position
// stored counts it.
func TestADeliveryUnderWayCountsOnce(t *testing.T) {
	c := New(Config{MaxAttempts: func(string) uint32 { return attempts }})
	c.Advance(1, 1)
	c.Join(member1(0), &meshv1.GroupJoin{Window: 1, Held: []*meshv1.GroupHeld{{Topic: "t", Epoch: epoch, Seq: 1, Attempt: 1}}})
	c.Begin(&Begin{
		Filter: "#", Heads: []exchange.Head{head("t", 1)}, Resumed: true, Unclean: true,
		Cursors: []*meshv1.SessionCursor{{Topic: "t", Epoch: epoch, Attempts: map[uint64]uint32{1: 2}}},
	})
	if got := logs(c, "t", 1); len(got) != 0 {
		t.Fatal(got)
	}
	c.Settle(member1(0), &meshv1.GroupSettle{Topic: "t", Epoch: epoch, Seq: 1, How: meshv1.GroupSettle_HOW_NACKED})
	if got := c.Take().Assigned; len(got) != 1 || got[0].Attempt != 2 {
		t.Fatal(got)
	}
}
