package interest

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// An edge that wants a topic by its name and by wildcards is found once, however many edges there
// are.
func TestManyEdgesAreFoundOnce(t *testing.T) {
	for _, edges := range []int{1, few - 1, few, few + 1, 4 * few, 200} {
		s := begin(t)
		for i := range edges {
			s.announce(fmt.Sprint("e", i), 1, 1, "x/y", "x/+", "#")
		}
		seen := map[string]int{}
		for _, p := range s.table.Lookup(nil, "x/y") {
			seen[p.ID]++
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%d edges: %s is found %d times", edges, id, n)
			}
		}
		if len(seen) != edges {
			t.Errorf("%d of %d edges are found", len(seen), edges)
		}
		if again := s.table.Lookup(nil, "x/y"); len(again) != edges {
			// nothing of the lookup before is left
			t.Errorf("%d edges: then %d are found", edges, len(again))
		}
	}
}

// Once ready, a router stays so when edges come whose interest it has still to learn: that is the
// edge's matter.
func TestAnEdgeThatComesLeavesTheRouterReady(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.pass(Hearing-200*time.Millisecond, true)
	if s.table.Ready(s.now) == nil {
		t.Error("ready before the edges can have spoken")
	}
	s.pass(time.Second, true)
	if err := s.table.Ready(s.now); err != nil {
		t.Fatal(err)
	}
	s.digest("b", 1, 5, "y", "z") // it lives for long: its interest must be asked for
	if err := s.table.Ready(s.now); err != nil {
		t.Errorf("an edge came: %v", err)
	}
	if got := s.table.Stats(); got.Missing != 1 || got.Edges != 2 {
		t.Errorf("%+v, want one of two edges missing", got)
	}
}

// An edge that restarts again and again costs what one costs: nothing of its former lives stays.
func TestRestartsLeaveNothing(t *testing.T) {
	s := begin(t)
	for life := range uint64(2000) {
		s.announce("a", life+1, 1, "x", "y/+")
		if life%2 == 0 { // and some lives end while a snapshot of theirs is on its way
			s.digest("a", life+1, 2, "x")
			s.pass(digestLagAllowed+200*time.Millisecond, true)
			s.part("a", life+1, 2, 0, 2, "x")
		}
		s.events = nil
		for s.table.Sweep() {
		}
	}
	if n := len(s.table.views); n > 8 {
		t.Errorf("%d pictures are kept of one edge", n)
	}
	if len(s.table.turns.asked) > maxAsked || len(s.table.turns.line) > 1 || len(s.table.dead) != 0 {
		t.Errorf("%d are asked, %d wait, %d are dead", len(s.table.turns.asked), len(s.table.turns.line), len(s.table.dead))
	}
	s.expect("x", "a.2000")
}

// What an edge announces while its snapshot is missing is bounded, by number and by filters;
// beyond, a newer snapshot has it all.
func TestPendingAnnouncementsAreBounded(t *testing.T) {
	for name, filters := range map[string]int{"many small": 1, "few large": 1 << 15} {
		s := begin(t)
		add := make([]string, filters)
		for i := range add {
			add[i] = fmt.Sprint(i)
		}
		s.digest("a", 1, 1, "x") // unknown so far: a snapshot is asked for
		for v := range uint64(maxPending + 10) {
			if filters > 1 && v > 3*maxPendingFilters/(1<<15) {
				break
			}
			s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: v + 2, Add: add})
			s.table.Take(nil)
		}
		e := s.table.edges["a"]
		held := 0
		for _, a := range e.pending {
			held += len(a.GetAdd())
		}
		if len(e.pending) > maxPending || held > maxPendingFilters || held != e.pendingFilters {
			t.Errorf("%s: %d announcements with %d filters are held, %d counted", name, len(e.pending), held, e.pendingFilters)
		}
	}
}

// Announcements that a snapshot contains are forgotten with it.
func TestPendingAnnouncementsEndWithTheSnapshot(t *testing.T) {
	s := begin(t)
	s.digest("a", 1, 1, "x")
	for v := range uint64(10) {
		s.announce("a", 1, v+2, fmt.Sprint("t", v))
	}
	s.part("a", 1, 5, 0, 1, "x", "t0", "t1", "t2", "t3")
	e := s.table.edges["a"]
	s.digest("a", 1, 11, "x", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9")
	if len(e.pending) != 0 || e.pendingFilters != 0 {
		t.Errorf("%d announcements with %d filters are held for nothing", len(e.pending), e.pendingFilters)
	}
	if s.wants("a"); e.active.version != 11 {
		t.Errorf("version %d is applied, want 11", e.active.version)
	}
	s.expect("t9", "a.1")
}

// A digest that is ahead of the announcements, and stays so, has a snapshot asked for; one that
// agrees with what is known has none.
func TestADigestAheadIsWaitedForABit(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.digest("a", 1, 1, "x")
	s.pass(2*time.Second, true)
	if s.wants("a") {
		t.Error("a digest that agrees had a snapshot asked for")
	}
	s.digest("a", 1, 2, "x", "y")
	if s.wants("a") {
		t.Error("an announcement on its way was not waited for")
	}
	s.pass(digestLagAllowed+100*time.Millisecond, true)
	if !s.wants("a") {
		t.Error("an announcement that never came was waited for in vain")
	}
	s.part("a", 1, 2, 0, 1, "x", "y")
	s.expect("y", "a.1")
	s.pass(2*time.Second, true)
	if s.wants("a") {
		t.Error("it was asked for again though it came")
	}
}

// Removals count for the hash: after adding and removing, the edge's digest agrees.
func TestADigestAgreesAfterRemovals(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x", "y", "z/+")
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: 2, Remove: []string{"y", "z/+", "not there"}})
	s.events = nil
	s.digest("a", 1, 2, "x")
	if s.wants("a") {
		t.Error("the table differs from what the edge wants")
	}
}

// Only a snapshot that was asked for counts, with as many parts as are allowed.
func TestASnapshotThatNobodyAskedForIsPassedOver(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.part("a", 1, 2, 0, 1, "y")
	s.expect("y")
	s.expect("x", "a.1")
	s.digest("b", 1, 1, "x")
	if !s.wants("b") {
		t.Fatal("no snapshot was asked for")
	}
	s.part("b", 1, 1, 0, maxSnapshotParts+1, "y")
	if s.table.edges["b"].staging != nil {
		t.Error("a snapshot of too many parts was begun")
	}
	s.part("b", 1, 1, 1, 1, "y") // beyond its own end
	s.part("b", 1, 1, 0, 2, "y")
	s.part("b", 1, 1, 1, 3, "z") // of another one
	s.expect("z")
	s.part("b", 1, 1, 1, 2, "z")
	s.expect("z", "b.1")
	s.expect("y", "b.1")
}

// A part that is lost spoils its snapshot: what is left of it is not used, and another one is asked
// for.
func TestALostPartSpoilsTheSnapshot(t *testing.T) {
	s := begin(t)
	s.digest("a", 1, 1, "x")
	s.events = nil
	s.part("a", 1, 1, 0, 3, "x")
	s.part("a", 1, 1, 2, 3, "z")
	s.part("a", 1, 1, 1, 3, "y")
	s.part("a", 1, 1, 2, 3, "z")
	s.expect("x")
	s.pass(askAgain+200*time.Millisecond, true)
	if !s.wants("a") {
		t.Error("no other one was asked for")
	}
	for s.table.Sweep() {
	}
	for i := range s.table.topics.part {
		if n := s.table.topics.part[i].n; n != 0 {
			t.Fatalf("%d topics of a spoilt snapshot are kept in a part", n)
		}
	}
}

// A word that comes after its edge's goodbye does not bring the edge back.
func TestALateWordBringsNobodyBack(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 1, Leaving: true})
	s.announce("a", 1, 1, "x")
	s.digest("a", 1, 1, "x")
	s.expect("x")
	if n := len(s.table.edges); n != 0 {
		t.Errorf("%d edges are known", n)
	}
}

// However many edges must be asked at once, few are at a time, each gets its turn, and one that
// never answers holds nobody up.
func TestSnapshotsComeInTurns(t *testing.T) {
	const edges = 50
	s := begin(t)
	s.table.Tick(s.now, true)
	for i := range edges {
		s.digest(fmt.Sprint(i), 1, 1, "x")
	}
	asked := map[string]int{}
	for range 400 {
		now := 0
		for _, ev := range s.events {
			if ev.Want {
				now++
				asked[ev.Peer.ID]++
			}
		}
		if now > maxAsked {
			t.Fatalf("%d are asked at once, %d at most", now, maxAsked)
		}
		events := s.events
		s.events = nil
		for _, ev := range events {
			if ev.Want && ev.Peer.ID != "7" { // that one never answers
				s.table.Snapshot(s.now, &meshv1.EdgeSnapshot{EdgeId: ev.Peer.ID, EdgeIncarnation: 1, Version: 1, Parts: 1, Filters: []string{"x"}})
			}
		}
		for i := range edges {
			s.table.Digest(s.now, digestOf(fmt.Sprint(i), 1, []string{"x"}))
		}
		s.pass(100*time.Millisecond, true)
	}
	if len(asked) != edges || len(s.table.Lookup(nil, "x")) != edges-1 {
		t.Errorf("%d of %d were asked, %d are known", len(asked), edges, len(s.table.Lookup(nil, "x")))
	}
	for id, n := range asked {
		if id != "7" && n > 2 {
			t.Errorf("%s was asked %d times though it answers", id, n)
		}
	}
	if asked["7"] < 10 {
		t.Errorf("who never answers was asked %d times in 40 s", asked["7"])
	}
}
