package interest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// A name is looked for near where it belongs: places are spread over the whole of a table, and so
// few are looked at. Tables whose names fall together have lookups, on the path of every message,
// walk over thousands.
func TestNamesAreSpread(t *testing.T) {
	const n = 5000
	var p part
	for i, made := 0, 0; made < n; i++ {
		k := keyOf(fmt.Sprint("room/", i))
		k.keyed >>= partBits // all in one part
		p.room(1, 0)
		p.add(k, 1)
		made++
	}
	far := 0
	for at, e := range p.entries {
		if e.members != 0 {
			far += away(home(e.key, len(p.entries)), at, len(p.entries))
		}
	}
	if mean := far / n; mean > 8 {
		t.Errorf("a topic is %d places from its own", mean)
	}
	var w wildPart
	for i := range n {
		w.put(mix(uint32(i%7), levelOf(fmt.Sprint(i))), uint32(i+1))
	}
	far = 0
	for at, r := range w.refs {
		if r.id != 0 {
			far += away(w.home(r.hash), at, len(w.refs))
		}
	}
	if mean := far / n; mean > 8 {
		t.Errorf("a node is %d places from its own", mean)
	}
	hit := map[uint64]int{}
	filled := map[uint32]int{}
	for i := range n {
		hit[partOfKey(keyOf(fmt.Sprint("room/", i)))]++
		filled[partOf(uint32(i%7), levelOf(fmt.Sprint(i)))]++
	}
	for what, x := range map[string]struct{ parts, used int }{"topics": {parts, len(hit)}, "nodes": {wildParts, len(filled)}} {
		if x.used < x.parts*9/10 {
			t.Errorf("%d %s are in %d of %d parts", n, what, x.used, x.parts)
		}
	}
}

// Who gets the place of an edge that is gone inherits nothing of it: not its topics, not its
// filters, and no messages of those topics that so many filters nearly match that every edge with
// wildcards gets them.
func TestWhoFollowsInAPlaceInheritsNothing(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x", "y/+", "#")
	before := s.table.edges["a"].active.slot
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 1, Leaving: true})
	for s.table.Sweep() {
	}
	s.announce("b", 1, 1, "z")
	if slot := s.table.edges["b"].active.slot; slot != before {
		t.Fatalf("b has place %d, a had %d", slot, before)
	}
	for _, topic := range []string{"x", "y/1", "w"} {
		s.expect(topic)
	}
	s.expect("z", "b.1")
	g := gathering{live: *s.table.live.peers.Load()}
	s.table.wild.all(&g)
	if len(g.dst) != 0 || s.table.wild.held.Load() != 0 {
		t.Errorf("an edge without wildcards is taken for one that has some, %d are counted", s.table.wild.held.Load())
	}
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "b", EdgeIncarnation: 1, Version: 2, Add: []string{"q/+"}})
	g = gathering{live: *s.table.live.peers.Load()}
	if s.table.wild.all(&g); len(g.dst) != 1 {
		t.Errorf("%d edges with wildcards, want b", len(g.dst))
	}
}

// Who says that a filter is gone which was never there, with wildcards or without, changes nothing.
func TestRemovalsOfWhatIsNotThere(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	remove := []string{"y", "y/+", "y/#", "#", "+", "x/+/z", "+/+"}
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: 2, Remove: remove})
	s.announce("b", 1, 1, "y", "y/+", "#", "+/+")
	s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: 3, Remove: remove})
	s.events = nil
	s.digest("a", 1, 3, "x")
	s.digest("b", 1, 1, "y", "y/+", "#", "+/+")
	if s.wants("a") || s.wants("b") {
		t.Error("the table differs from what the edges want")
	}
	s.expect("x", "a.1", "b.1")
	s.expect("y/1", "b.1")
}

// A goodbye is of the process that says it: one that comes late, of a process before, or early, of
// one that nobody has heard, drops nobody else.
func TestAGoodbyeIsOfItsProcess(t *testing.T) {
	s := begin(t)
	s.announce("a", 2, 1, "x")
	for _, other := range []uint64{1, 3} {
		s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: other, Leaving: true})
		s.expect("x", "a.2")
	}
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "nobody", EdgeIncarnation: 1, Leaving: true})
	s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: "a", EdgeIncarnation: 2, Leaving: true})
	s.expect("x")
}

// Parts of two snapshots make none: what belongs to another version, or to one of other parts, is
// passed over.
func TestPartsOfOtherSnapshots(t *testing.T) {
	s := begin(t)
	s.digest("a", 1, 5, "x", "y")
	s.part("a", 1, 5, 0, 2, "x")
	s.part("a", 1, 4, 1, 2, "older")
	s.part("a", 1, 6, 1, 2, "newer")
	s.part("a", 1, 5, 1, 3, "of three")
	s.part("a", 1, 5, 0, 2, "x") // begins anew
	s.part("a", 1, 5, 1, 2, "y")
	for _, topic := range []string{"older", "newer", "of three"} {
		s.expect(topic)
	}
	s.expect("x", "a.1")
	s.expect("y", "a.1")
	s.events = nil
	s.digest("a", 1, 5, "x", "y")
	if s.wants("a") {
		t.Error("the table differs from what the edge wants")
	}
}

// What is known of edges can be asked for.
func TestWhatIsKnownOfEdges(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x", "y/+")
	for id, n := range map[string]uint32{"a": 3, "b": 4} {
		d := digestOf(id, 1, []string{"x", "y/+"})
		d.Connections, d.Draining = n, id == "b"
		s.table.Digest(s.now, d)
	}
	if got, want := s.table.Stats(), (Stats{Edges: 2, Entries: 2, Connections: 7, Missing: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	edges, homes := s.table.Edges(nil), s.table.Homes(nil)
	for _, want := range []Home{{Edge{"a", 1}, 3, false}, {Edge{"b", 1}, 4, true}} {
		if !slices.Contains(edges, want.Edge) || !slices.Contains(homes, want) {
			t.Errorf("%v, %v: want %v", edges, homes, want)
		}
	}
	if len(edges) != 2 || len(homes) != 2 {
		t.Errorf("%v, %v", edges, homes)
	}
}

// A new router listens for exactly so long before it is ready, from its first connection on, and
// each way of not being ready says what is missing.
func TestARouterListensFirst(t *testing.T) {
	s := begin(t)
	if err := s.table.Ready(s.now); err == nil {
		t.Error("ready without a connection")
	}
	s.table.Tick(s.now, true)
	first := s.now
	s.now = first.Add(Hearing - 1)
	s.table.Tick(s.now, true)
	if err := s.table.Ready(s.now); err == nil {
		t.Error("ready before it has listened")
	}
	s.now = first.Add(Hearing)
	if err := s.table.Ready(s.now); err != nil {
		t.Error(err)
	}
	s.table.Tick(s.now, true)
	s.digest("a", 1, 1, "x") // comes anew: the edge's matter
	if err := s.table.Ready(s.now); err != nil {
		t.Error(err)
	}
}
