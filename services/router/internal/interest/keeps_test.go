package interest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// The index of nodes holds what a plain map would, whatever was put and dropped, and however often
// it grew and shrank. Hashes fall together as badly as can be: three homes, and the last of the
// table that goes on at its beginning.
func TestWildPartAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p wildPart
		held := map[uint32]uint32{} // hash by id
		next := uint32(1)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "step") > 0 {
				hash := rapid.SampledFrom([]uint32{0, 1 << 20, 1<<32 - 1}).Draw(t, "home") + uint32(rapid.IntRange(-3, 3).Draw(t, "hash"))
				p.put(hash, next)
				held[next] = hash
				next++
			} else {
				ids := make([]uint32, 0, len(held))
				for id := range held {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				for range min(len(ids), rapid.IntRange(1, 30).Draw(t, "many")) {
					i := rapid.IntRange(0, len(ids)-1).Draw(t, "which")
					p.drop(held[ids[i]], ids[i])
					delete(held, ids[i])
					ids = slices.Delete(ids, i, i+1)
				}
			}
			if p.n != len(held) || p.n*4 > len(p.refs)*3 || len(p.refs) > 2*max(minEntries, 3*p.n) {
				t.Fatalf("%d nodes in %d refs, want %d", p.n, len(p.refs), len(held))
			}
			for id, hash := range held {
				at := p.home(hash)
				for p.refs[at].id != 0 && p.refs[at].id != id {
					at = p.after(at)
				}
				if p.refs[at] != (ref{hash, id}) {
					t.Fatalf("node %d is not found from its home on", id)
				}
			}
		}
	})
}

// A place among those that are asked is free again as soon as its edge has left, or is no longer
// needed, or says nothing: others have it at the next tick, and nobody is passed over for ever. One
// whose interest was found to be known meanwhile is not asked at all.
func TestPlacesOfThoseWhoNeedNothingAreFree(t *testing.T) {
	for name, end := range map[string]func(s *story, edge string){
		"they left": func(s *story, edge string) {
			s.table.Digest(s.now, &meshv1.EdgeDigest{EdgeId: edge, EdgeIncarnation: 1, Leaving: true})
		},
		"they agree":  func(s *story, edge string) { s.digest(edge, 1, 1, "x") },
		"are silent":  func(s *story, _ string) { s.now = s.now.Add(askAgain / maxAsked) },
		"began anew":  func(s *story, edge string) { s.announce(edge, 2, 1, "x") },
		"they answer": func(s *story, edge string) { s.part(edge, 1, 1, 0, 1, "x") },
	} {
		s := begin(t)
		s.table.Tick(s.now, true)
		asked := func() (ids []string) {
			s.take()
			for _, ev := range s.events {
				if ev.Want {
					ids = append(ids, ev.Peer.ID)
				}
			}
			s.events = nil
			return ids
		}
		const edges = 3 * maxAsked
		for i := range edges {
			s.announce(fmt.Sprint(i), 1, 1, "x")
		}
		asked()
		for i := range edges {
			s.digest(fmt.Sprint(i), 1, 1, "x", "y") // it differs
		}
		if got := asked(); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
			t.Fatalf("%s: %v are asked first", name, got)
		}
		s.digest("5", 1, 1, "x") // and agrees before its turn
		for i := range maxAsked {
			end(s, fmt.Sprint(i))
		}
		s.table.Tick(s.now, true)
		got := asked()
		got = slices.DeleteFunc(got, func(id string) bool { return id < "4" && len(id) == 1 })
		if slices.Contains(got, "5") || len(got) > maxAsked || len(got) < maxAsked && name != "are silent" {
			t.Errorf("%s: then %v are asked", name, got)
		}
		for range 40 { // whoever never answers holds up nobody
			s.pass(100*time.Millisecond, true)
			got = append(got, asked()...)
		}
		for i := maxAsked; i < edges; i++ {
			if id := fmt.Sprint(i); slices.Contains(got, id) == (id == "5") {
				t.Errorf("%s: edge %s is asked: %v", name, id, id == "5")
			}
		}
	}
}

// An announcement that closes a gap brings those with it that came before their time, also where a
// digest has found nothing missing meanwhile.
func TestWhatCameTooEarlyFollowsWhatItWaitedFor(t *testing.T) {
	s := begin(t)
	s.announce("a", 1, 1, "x")
	s.announce("a", 1, 3, "z")
	s.digest("a", 1, 1, "x")
	s.announce("a", 1, 2, "y")
	if v := s.answered("a"); v != 3 {
		t.Errorf("version %d is applied, want 3", v)
	}
	for _, topic := range []string{"x", "y", "z"} {
		s.expect(topic, "a.1")
	}
}

// What is held for an edge goes as soon as nothing may need it: announcements that the snapshot on
// its way contains with its first part, and a snapshot with the digest that makes it needless.
func TestNothingIsHeldForNothing(t *testing.T) {
	s := begin(t)
	s.digest("a", 1, 1, "x")
	for v := range uint64(10) {
		s.table.Announce(s.now, &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1, Version: v + 2, Add: []string{fmt.Sprint(v)}, Remove: []string{"r", "s"}})
	}
	e := s.table.edges["a"]
	if len(e.pending) != 10 || e.pendingFilters != 30 {
		t.Errorf("%d announcements with %d filters are held", len(e.pending), e.pendingFilters)
	}
	s.part("a", 1, 6, 0, 2, "x")
	if len(e.pending) != 5 || e.pendingFilters != 15 {
		t.Errorf("%d announcements with %d filters are held beside a snapshot that contains half of them", len(e.pending), e.pendingFilters)
	}

	s = begin(t)
	s.announce("b", 1, 1, "x")
	s.digest("b", 1, 1, "x", "y")
	s.part("b", 1, 1, 0, 2, "x")
	s.digest("b", 1, 1, "x")
	if e := s.table.edges["b"]; e.staging != nil || len(s.table.dead) != 1 {
		t.Error("a snapshot that nobody wants any more is kept")
	}
}

// A snapshot has as many parts as it says, one at least and no more than are allowed; anything else
// is nonsense, and passed over.
func TestPartsOfASnapshot(t *testing.T) {
	for _, c := range []struct {
		part, parts uint32
		taken       bool
	}{{0, 1, true}, {0, maxSnapshotParts, true}, {0, maxSnapshotParts + 1, false}, {0, 0, false}, {1, 1, false}, {2, 1, false}} {
		s := begin(t)
		s.digest("a", 1, 1, "x")
		s.part("a", 1, 1, c.part, c.parts, "x")
		e := s.table.edges["a"]
		if taken := e.staging != nil || e.active != nil; taken != c.taken {
			t.Errorf("part %d of %d is taken: %v", c.part, c.parts, taken)
		}
	}
	s := begin(t) // parts of which one has a number beyond them do not end the snapshot
	s.digest("a", 1, 1, "x")
	s.part("a", 1, 1, 0, 2, "x")
	s.part("a", 1, 1, 2, 2, "y")
	if s.table.edges["a"].staging == nil {
		t.Error("a part that can't be spoils the snapshot")
	}
}

// A suspicion ends with its reason: once the edges speak again, or are given up, the router is
// ready, and a later suspicion takes its own time.
func TestASuspicionEndsWithItsReason(t *testing.T) {
	speak := func(s *story, d time.Duration, edges ...string) {
		for end := s.now.Add(d); s.now.Before(end); {
			for _, e := range edges {
				s.digest(e, 1, 1, "x")
			}
			s.pass(500*time.Millisecond, true)
		}
	}
	for name, comes := range map[string]bool{"they speak again": true, "they are given up": false} {
		s := begin(t)
		for _, e := range []string{"a", "b", "c"} {
			s.announce(e, 1, 1, "x")
		}
		speak(s, 2*time.Second, "a", "b", "c")
		if err := s.table.Ready(s.now); err != nil {
			t.Fatal(err)
		}
		speak(s, SilentAfter+time.Second, "a", "b")
		if s.table.Ready(s.now) == nil || !s.table.Stats().Suspecting {
			t.Errorf("%s: a third of the edges is silent, and it suspects nothing", name)
		}
		if comes {
			speak(s, time.Second, "a", "b", "c")
		} else {
			speak(s, SuspectFor, "a", "b")
		}
		if err := s.table.Ready(s.now); err != nil || s.table.Stats().Suspecting {
			t.Errorf("%s: %v", name, err)
		}
		speak(s, SilentAfter+time.Second, "a")
		if s.table.Ready(s.now) == nil || s.table.edges["b"] == nil {
			t.Errorf("%s: the next edge is dropped without a doubt", name)
		}
		speak(s, SuspectFor-2*time.Second, "a")
		if s.table.edges["b"] == nil {
			t.Errorf("%s: the second suspicion is shorter than the first", name)
		}
	}
}
