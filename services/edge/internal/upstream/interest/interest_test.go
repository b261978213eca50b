package interest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

var start = time.UnixMicro(1_000_000)

func TestChangesAreAnnouncedTogether(t *testing.T) {
	table := New("e1", 7)
	if !table.Join(start, 0, "a") || table.Join(start.Add(time.Millisecond), 0, "a") || !table.Join(start, 1, "a") {
		t.Error("first joins of a loop are told wrongly")
	}
	table.Join(start, 0, "b")
	table.Join(start, 0, "gone")
	table.Leave(start, 0, "gone")
	if at, ok := table.Due(); !ok || at != start.Add(Coalesce) {
		t.Errorf("due at %v %v", at, ok)
	}
	got := announceAll(table)
	want := &meshv1.EdgeAnnounce{EdgeId: "e1", EdgeIncarnation: 7, Version: 1, Add: []string{"a", "b"}}
	if len(got) != 1 || !proto.Equal(got[0], want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if _, ok := table.Due(); ok || table.Announced("a") != 1 || table.Announced("gone") != 0 {
		t.Error("something is due, or announced wrongly")
	}
	table.Leave(start, 0, "a")
	table.Leave(start, 0, "a")
	if _, ok := table.Due(); ok {
		t.Error("loop 1 still wants a")
	}
	table.Leave(start, 1, "a")
	table.Leave(start, 1, "a") // once too often
	got = announceAll(table)
	if len(got) != 1 || got[0].GetVersion() != 2 || !slices.Equal(got[0].GetRemove(), []string{"a"}) {
		t.Fatalf("got %v", got)
	}
}

func TestLargeChangesComeInParts(t *testing.T) {
	table := New("e", 1)
	for i := range 5000 {
		table.Join(start, 0, fmt.Sprintf("%05d/%s", i, strings.Repeat("x", 240)))
	}
	all := announceAll(table)
	if len(all) < 2 {
		t.Fatalf("%d announcements", len(all))
	}
	n := 0
	for i, a := range all {
		n += len(a.GetAdd())
		if a.GetVersion() != uint64(i+1) || len(a.GetAdd()) > changesAtATime {
			t.Errorf("announcement %d: version %d, %d bytes", i, a.GetVersion(), proto.Size(a))
		}
	}
	parts := allParts(table.Snapshot())
	m := 0
	for i, p := range parts {
		m += len(p.GetFilters())
		if p.GetPart() != uint32(i) || p.GetParts() != uint32(len(parts)) || p.GetVersion() != table.Version() || proto.Size(p) > snapshotPart+256 {
			t.Errorf("part %d of %d: %d bytes", p.GetPart(), p.GetParts(), proto.Size(p))
		}
	}
	if n != 5000 || m != 5000 {
		t.Errorf("%d announced, %d in the snapshot", n, m)
	}
}

// A router that applies every announcement holds what the digest and a snapshot say, whatever joins
// and leaves were.
func TestAnnouncementsDigestAndSnapshotAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New("e", 1)
		held := map[string]bool{}
		joins := map[string][]int{}
		version := uint64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			f := rapid.SampledFrom([]string{"a", "b", "c/+", "d/#"}).Draw(t, "filter")
			loop := rapid.IntRange(0, 2).Draw(t, "loop")
			switch rapid.SampledFrom([]string{"join", "leave", "announce"}).Draw(t, "step") {
			case "join":
				if table.Join(start, loop, f) == slices.Contains(joins[f], loop) {
					t.Fatalf("first join of %s by %d told wrongly", f, loop)
				}
				joins[f] = append(joins[f], loop)
			case "leave":
				i := slices.Index(joins[f], loop)
				if i >= 0 {
					joins[f] = slices.Delete(joins[f], i, i+1)
				}
				if last := table.Leave(start, loop, f); last != (i >= 0 && !slices.Contains(joins[f], loop)) {
					t.Fatalf("last leave of %s by %d told wrongly", f, loop)
				}
			case "announce":
				for _, a := range announceAll(table) {
					if version++; a.GetVersion() != version {
						t.Fatalf("version %d after %d", a.GetVersion(), version-1)
					}
					for _, f := range a.GetAdd() {
						if held[f] {
							t.Fatalf("%s was added twice", f)
						}
						held[f] = true
					}
					for _, f := range a.GetRemove() {
						if !held[f] {
							t.Fatalf("%s was removed twice", f)
						}
						delete(held, f)
					}
				}
				for f, loops := range joins {
					if held[f] != (len(loops) > 0) {
						t.Fatalf("%s: %d joins, held %v", f, len(loops), held[f])
					}
				}
			}
			var hash uint64
			var want []string
			for f := range held {
				hash += xxhash.Sum64String(f)
				want = append(want, f)
			}
			if d := table.Digest(); d.GetCount() != uint64(len(held)) || d.GetHash() != hash || d.GetVersion() != version {
				t.Fatalf("digest %v of %v", d, held)
			}
			got := allParts(table.Snapshot())[0].GetFilters()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("snapshot %v, want %v", got, want)
			}
		}
	})
}

// announceAll makes announcements of every change so far.
func announceAll(t *Table) (all []*meshv1.EdgeAnnounce) {
	for _, due := t.Due(); due; _, due = t.Due() {
		if a := t.Announce(); a != nil {
			all = append(all, a)
		}
	}
	return all
}

// next is the next part, decoded; nil after the last, or where it is none. between is called
// between two slices of it.
func next(s *Snapshot, between ...func()) *meshv1.EdgeSnapshot {
	if s.Last() {
		return nil
	}
	most := 1 << 20
	if len(between) > 0 {
		most = 300
	}
	data, whole := s.Next(nil, most)
	for ; !whole; data, whole = s.Next(data, most) {
		for _, f := range between {
			f()
		}
	}
	p := &meshv1.EdgeSnapshot{}
	if proto.Unmarshal(data, p) != nil {
		return nil
	}
	return p
}

func allParts(s *Snapshot) (parts []*meshv1.EdgeSnapshot) {
	for p := next(s); p != nil; p = next(s) {
		parts = append(parts, p)
	}
	return parts
}

// Whoever applies the announcements after a snapshot's version to it has what is announced, however
// much changed between its parts.
func TestASnapshotMayBeTakenWhileTheTableChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New("e", 1)
		name := func(i int) string { return fmt.Sprintf("%d/%s", i, strings.Repeat("x", 240)) }
		var log []*meshv1.EdgeAnnounce
		on := map[int]bool{}
		flip := func(i int) {
			if on[i] = !on[i]; on[i] {
				table.Join(start, 0, name(i))
			} else {
				table.Leave(start, 0, name(i))
			}
		}
		for i := range rapid.IntRange(0, 4000).Draw(t, "before") {
			flip(i)
		}
		announceAll(table)
		s := table.Snapshot()
		version, held := table.Version(), map[string]bool{}
		n := uint32(0)
		change := func() {
			from, count := rapid.IntRange(0, 5000).Draw(t, "from"), rapid.IntRange(0, 2000).Draw(t, "count")
			for range rapid.IntRange(0, 2).Draw(t, "times") {
				// twice: away, and back under a later version
				for i := from; i < from+count; i++ {
					flip(i)
				}
				if rapid.Bool().Draw(t, "all of it") {
					log = append(log, announceAll(table)...)
				} else if a := table.Announce(); a != nil {
					log = append(log, a)
				}
			}
		}
		pauses := 0
		between := func() {
			if pauses++; pauses%4 == 0 { // changing all of it each time takes the test too long
				change()
			}
		}
		for p := next(s, between); p != nil; p = next(s, between) {
			if p.GetPart() != n || p.GetVersion() != version || s.Last() != (n+1 == p.GetParts()) || proto.Size(p) > snapshotPart+256 {
				t.Fatalf("part %d of %d, version %d, %d bytes", p.GetPart(), p.GetParts(), p.GetVersion(), proto.Size(p))
			}
			n++
			for _, f := range p.GetFilters() {
				held[f] = true
			}
			change()
		}
		for _, a := range log {
			for _, f := range a.GetRemove() {
				delete(held, f)
			}
			for _, f := range a.GetAdd() {
				held[f] = true
			}
		}
		d := table.Digest()
		for f := range held {
			d.Hash -= xxhash.Sum64String(f)
		}
		if d.GetHash() != 0 || d.GetCount() != uint64(len(held)) {
			t.Fatalf("%d held, %d announced, and others", len(held), d.GetCount())
		}
	})
}

func TestGateOpensByVersionOrByTime(t *testing.T) {
	var g Gate
	g.Add(start, 3, Wait{Sub: 3})
	g.Add(start.Add(time.Millisecond), 1, Wait{Sub: 1})
	g.Add(start.Add(2*time.Millisecond), 2, Wait{Sub: 2})
	if out := g.Applied(0, 9); len(out) != 0 {
		t.Errorf("%v too early", out)
	}
	if out := g.Applied(2, 9); len(out) != 2 || out[0].Sub != 1 || out[1].Sub != 2 {
		t.Errorf("got %v", out)
	}
	if at, ok := g.Next(); !ok || at != start.Add(Patience) {
		t.Errorf("next %v %v", at, ok)
	}
	if out := g.Late(start.Add(Patience-1), 9); len(out) != 0 {
		t.Errorf("%v before its time", out)
	}
	if out := g.Late(start.Add(Patience), 9); len(out) != 1 || out[0].Sub != 3 {
		t.Errorf("got %v", out)
	}
	if _, ok := g.Next(); ok || g.Len() != 0 {
		t.Error("something is held")
	}
}
