package interest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

var zero = time.Unix(1_000_000, 0)

// story drives a table and keeps what it asked for.
type story struct {
	t      *testing.T
	table  Table
	now    time.Time
	events []Event
}

func begin(t *testing.T) *story { return &story{t: t, now: zero} }

// pass lets time go by in ticks.
func (s *story) pass(d time.Duration, connected bool) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(100 * time.Millisecond)
		s.table.Tick(s.now, connected)
		s.take()
	}
}

func (s *story) take() { s.events = s.table.Take(s.events) }

func (s *story) announce(edge string, incarnation, version uint64, add ...string) {
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: incarnation, Version: version, Add: add})
	s.take()
}

func digestOf(edge string, version uint64, filters []string) *meshv1.EdgeDigest {
	d := &meshv1.EdgeDigest{EdgeId: edge, EdgeIncarnation: 1, Version: version, Count: uint64(len(filters))}
	for _, f := range filters {
		d.Hash += xxhash.Sum64String(f)
	}
	return d
}

func (s *story) digest(edge string, incarnation, version uint64, filters ...string) {
	d := digestOf(edge, version, filters)
	d.EdgeIncarnation = incarnation
	s.table.Digest(s.now, d)
	s.take()
}

func (s *story) part(edge string, incarnation, version uint64, part, parts uint32, filters ...string) {
	s.table.Snapshot(s.now, &meshv1.EdgeSnapshot{
		EdgeId: edge, EdgeIncarnation: incarnation, Version: version, Part: part, Parts: parts, Filters: filters,
	})
	s.take()
}

// wants reports whether a snapshot of edge was asked for since the last call of wants or answered.
func (s *story) wants(edge string) bool {
	want := slices.ContainsFunc(s.events, func(e Event) bool { return e.Peer.ID == edge && e.Want })
	s.events = nil
	return want
}

// answered is the version that the last answer to edge named.
func (s *story) answered(edge string) uint64 {
	var v uint64
	for _, e := range s.events {
		if e.Kind == Answer && e.Peer.ID == edge {
			v = e.Applied
		}
	}
	s.events = nil
	return v
}

func (s *story) expect(topic string, edges ...string) {
	s.t.Helper()
	var got []string
	for _, e := range s.table.Lookup(nil, topic) {
		got = append(got, fmt.Sprintf("%s.%d", e.ID, e.Incarnation))
	}
	slices.Sort(got)
	if !slices.Equal(got, edges) {
		s.t.Fatalf("%s goes to %v, want %v", topic, got, edges)
	}
}

func TestAnnouncementsFromTheFirstWord(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x", "y/+")
	if v := s.answered("a"); v != 1 {
		t.Fatalf("answered %d", v)
	}
	s.expect("x", "a.1")
	s.expect("y/1", "a.1")
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: 2, Add: []string{"z"}, Remove: []string{"x", "y/+"}})
	s.take()
	s.expect("x")
	s.expect("y/1")
	s.expect("z", "a.1")
	s.announce("a", 1, 1, "x") // late
	s.expect("x")
	if v := s.answered("a"); v != 2 {
		t.Fatalf("answered %d", v)
	}
}

func TestATopicWantedByManyEdges(t *testing.T) {
	s := begin(t)
	var all []string
	for i := range 12 {
		id := fmt.Sprintf("e%02d", i)
		s.announce(id, 1, 1, "x", "x/#", "#")
		all = append(all, id+".1")
		s.expect("x", all...)
	}
	for i := range 12 {
		id := fmt.Sprintf("e%02d", i)
		s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: id, EdgeIncarnation: 1, Version: 2, Remove: []string{"x", "x/#", "#"}})
		all = all[1:]
		s.expect("x", all...)
	}
	if n := s.table.Stats().Entries; n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestAGapAsksForASnapshot(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.events = nil
	s.announce("a", 1, 3, "z")
	if !s.wants("a") {
		t.Fatal("no snapshot wanted")
	}
	s.expect("z")
	s.part("a", 1, 2, 0, 2, "x")
	s.announce("a", 1, 4, "w")
	s.expect("y")
	s.part("a", 1, 2, 1, 2, "y")
	for _, topic := range []string{"x", "y", "z", "w"} {
		s.expect(topic, "a.1")
	}
	if v := s.answered("a"); v != 4 {
		t.Fatalf("answered %d", v)
	}
	s.digest("a", 1, 4, "x", "y", "z", "w")
	if s.wants("a") {
		t.Fatal("wants another snapshot")
	}
}

func TestAnUnknownEdgeAsksForASnapshot(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 7, "x")
	if !s.wants("a") {
		t.Fatal("no snapshot wanted")
	}
	s.digest("b", 1, 9, "x", "y")
	if !s.wants("b") {
		t.Fatal("no snapshot wanted")
	}
	s.digest("c", 1, 5) // wants nothing: there is nothing to ask for
	if s.wants("c") {
		t.Fatal("asked for nothing")
	}
	s.announce("c", 1, 6, "x")
	s.expect("x", "c.1")
}

func TestADigestThatDiffersAsksForASnapshot(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.events = nil
	s.digest("a", 1, 1, "x")
	if s.wants("a") {
		t.Fatal("a digest that agrees")
	}
	s.digest("a", 1, 1, "y")
	if !s.wants("a") {
		t.Fatal("no snapshot wanted")
	}
	s.part("a", 1, 1, 0, 1, "y")
	s.expect("x")
	s.expect("y", "a.1")
}

func TestALostLastAnnouncementIsNoticedByTheDigest(t *testing.T) {
	s := begin(t)
	s.table.Tick(s.now, true)
	s.announce("a", 1, 1, "x")
	s.events = nil
	s.digest("a", 1, 2, "x", "y")
	if s.wants("a") {
		t.Fatal("the announcement may be under way still")
	}
	s.pass(300*time.Millisecond, true)
	if !s.wants("a") {
		t.Fatal("no snapshot wanted")
	}
}

func TestALostPartIsAskedForAgain(t *testing.T) {
	s := begin(t)
	s.table.Tick(s.now, true)
	s.digest("a", 1, 1, "x", "y", "z")
	s.part("a", 1, 1, 0, 3, "x")
	s.part("a", 1, 1, 2, 3, "z") // part 1 is lost
	s.part("a", 1, 1, 2, 3, "z") // and this one doubled: as many as there should be
	s.events = nil
	s.pass(600*time.Millisecond, true)
	if !s.wants("a") {
		t.Fatal("no other snapshot wanted")
	}
	s.expect("x")
	for i, f := range []string{"x", "y", "z"} {
		s.part("a", 1, 1, uint32(i), 3, f)
		s.part("a", 1, 1, uint32(i), 3, f) // doubled
	}
	s.expect("y", "a.1")
	if n := s.table.Stats().Entries; n != 3 {
		t.Errorf("%d entries", n)
	}
}

func TestANewIncarnationReplacesTheOld(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x", "x/#")
	s.events = nil
	s.announce("a", 2, 1, "y")
	s.expect("x")
	s.expect("y", "a.2")
	var got []string
	for _, e := range s.events {
		got = append(got, fmt.Sprint(e.Kind, e.Peer.Edge, e.Applied))
	}
	if want := []string{"2 {a 1} 0", "0 {a 2} 0", "1 {a 2} 1"}; !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
	s.announce("a", 1, 2, "x") // of the dead
	s.expect("x")
}

func TestLeavingEndsAtOnceAndForGood(t *testing.T) {
	s := begin(t)
	s.table.Tick(s.now, true)
	s.announce("a", 1, 1, "x")
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 1, Leaving: true})
	s.expect("x")
	s.announce("a", 1, 1, "x") // overtaken by the farewell
	s.expect("x")
	s.announce("a", 2, 1, "x")
	s.expect("x", "a.2")
}

func TestASilentEdgeIsDropped(t *testing.T) {
	s := begin(t)
	s.table.Tick(s.now, true)
	ids := []string{"a", "b", "c", "d"}
	for _, id := range ids {
		s.announce(id, 1, 1, "x")
	}
	for range 4 {
		s.pass(time.Second, true)
		for _, id := range ids[1:] {
			s.digest(id, 1, 1, "x")
		}
	}
	s.expect("x", "b.1", "c.1", "d.1")
	if err := s.table.Ready(s.now); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestAThirdSilentTogetherMakesTheRouterSuspectItself(t *testing.T) {
	s := begin(t)
	s.table.Tick(s.now, true)
	for _, id := range []string{"a", "b", "c"} {
		s.announce(id, 1, 1, "x")
	}
	hear := func(seconds int) {
		for range seconds {
			s.pass(time.Second, true)
			s.digest("b", 1, 1, "x")
			s.digest("c", 1, 1, "x")
		}
	}
	hear(4)
	s.expect("x", "a.1", "b.1", "c.1")
	if err := s.table.Ready(s.now); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("ready: %v", err)
	}
	s.digest("a", 1, 1, "x") // it was the network
	s.pass(200*time.Millisecond, true)
	if err := s.table.Ready(s.now); err != nil {
		t.Errorf("not ready: %v", err)
	}
	hear(4)
	if s.table.Ready(s.now) == nil {
		t.Error("ready")
	}
	hear(10) // the others were heard all the time: it was not the router
	s.expect("x", "b.1", "c.1")
	if err := s.table.Ready(s.now); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestNobodyIsSilentWhileTheRouterCantHear(t *testing.T) {
	s := begin(t)
	s.pass(2*time.Second, true)
	s.announce("a", 1, 1, "x")
	s.pass(time.Minute, false)
	s.expect("x", "a.1")
	if s.table.Ready(s.now) == nil {
		t.Error("ready without a connection")
	}
	s.pass(2*time.Second, true)
	s.expect("x", "a.1")
	if err := s.table.Ready(s.now); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestEdgesAreAskedAFewAtATime(t *testing.T) {
	s := begin(t)
	s.table.Tick(s.now, true)
	asked := func() (ids []string) {
		for _, e := range s.events {
			if e.Want {
				ids = append(ids, e.Peer.ID)
			}
		}
		s.events = nil
		return ids
	}
	for i := range 10 {
		s.digest(fmt.Sprint(i), 1, 1, "x")
	}
	expect := func(want ...string) {
		t.Helper()
		if got := asked(); !slices.Equal(got, want) {
			t.Fatalf("asked %v, want %v", got, want)
		}
	}
	expect("0", "1", "2", "3")
	s.digest("4", 1, 1, "x") // stands in the line already
	s.part("1", 1, 1, 0, 1, "x")
	expect("4")
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "5", EdgeIncarnation: 1, Leaving: true})
	s.part("0", 1, 1, 0, 1, "x")
	expect("6")
	s.now = s.now.Add(askAgain) // the others are silent, and lose their places
	s.table.Tick(s.now, true)
	s.take()
	if got := asked(); len(got) != maxAsked {
		t.Fatalf("asked %v", got)
	}
	for range 3 {
		for i := range 10 {
			s.part(fmt.Sprint(i), 1, 1, 0, 1, "x")
		}
	}
	for i := range 10 {
		if e := s.table.edges[fmt.Sprint(i)]; e != nil && e.active == nil {
			t.Errorf("%d is not known", i)
		}
	}
}

func TestReadyOnceEveryTableIsThere(t *testing.T) {
	s := begin(t)
	s.pass(time.Second, true)
	if s.table.Ready(s.now) == nil {
		t.Error("ready before it listened for a digest period")
	}
	s.digest("a", 1, 3, "x")
	s.pass(500*time.Millisecond, true)
	if s.table.Ready(s.now) == nil {
		t.Error("ready without the table of a")
	}
	s.part("a", 1, 3, 0, 1, "x")
	if err := s.table.Ready(s.now); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestEntriesOfTheDeadAreFreed(t *testing.T) {
	s := begin(t)
	for life := range uint64(20) {
		for i := range 100 {
			s.announce("a", life+1, uint64(i+1), fmt.Sprintf("t/%d", i))
		}
	}
	s.announce("b", 1, 1, "t/1")
	for s.table.Sweep() {
	}
	entries := 0
	for i := range s.table.topics.part {
		entries += s.table.topics.part[i].n
	}
	slots := 0
	for _, v := range s.table.views {
		if v != nil {
			slots++
		}
	}
	if entries != 100 || slots != 2 {
		t.Errorf("%d topics, %d slots", entries, slots)
	}
	s.expect("t/1", "a.20", "b.1")
}

func announcement(edge string, add []string) *meshv1.EdgeAnnounce {
	return &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: 1, Version: 1, Add: add}
}
