package interest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What was wanted and is not any more costs nothing: no memory, no part of a snapshot, no bytes
// that are counted.
func TestLeavingFreesEverything(t *testing.T) {
	table := New("e", 1)
	for round := range 3 {
		for i := range 3 * slabChunk {
			table.Join(start, 0, fmt.Sprint(round, "/", i))
			table.Join(start, 0, fmt.Sprint("gone before it was announced/", i))
			table.Leave(start, 0, fmt.Sprint("gone before it was announced/", i))
		}
		announceAll(table)
		for i := range 3 * slabChunk {
			table.Leave(start, 0, fmt.Sprint(round, "/", i))
		}
		announceAll(table)
		if table.Len() != 0 || len(table.index) != 0 || table.bytes != 0 {
			t.Fatalf("%d announced, %d known, %d bytes counted", table.Len(), len(table.index), table.bytes)
		}
		if table.slab.end != 0 || len(table.slab.chunks) != 0 {
			t.Fatalf("%d places are taken", table.slab.end)
		}
	}
}

// Places of filters that went are used again: an edge whose subscribers come and go does not grow.
func TestPlacesAreUsedAgain(t *testing.T) {
	table := New("e", 1)
	table.Join(start, 0, "stays")
	announceAll(table)
	for i := range 10 * slabChunk {
		table.Join(start, 0, fmt.Sprint(i))
		announceAll(table)
		table.Leave(start, 0, fmt.Sprint(i))
		announceAll(table)
	}
	if table.slab.end > slabChunk {
		t.Errorf("%d places for two filters", table.slab.end)
	}
}

// A gate lets each join go once: when its version is applied, or else when its time is over; the
// lowest versions first.
func TestGateAgreesWithAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Gate
		type join struct {
			sub     uint32
			version uint64
			until   time.Time
		}
		var held []join
		now := start
		take := func(which func(join) bool) (subs []uint32) {
			for _, j := range held {
				if which(j) {
					subs = append(subs, j.sub)
				}
			}
			held = slices.DeleteFunc(held, which)
			slices.Sort(subs)
			return subs
		}
		compare := func(what string, out []Wait, want []uint32) {
			var got []uint32
			for _, w := range out {
				got = append(got, w.Sub)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
		for sub := range uint32(rapid.IntRange(1, 60).Draw(t, "steps")) {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"add", "add", "add", "applied", "late"}).Draw(t, "step") {
			case "add":
				version := rapid.Uint64Range(1, 9).Draw(t, "version")
				g.Add(now, version, Wait{Sub: sub})
				held = append(held, join{sub, version, now.Add(Patience)})
			case "applied":
				version := rapid.Uint64Range(0, 9).Draw(t, "version")
				compare("applied", g.Applied(version, 99), take(func(j join) bool { return j.version <= version }))
			case "late":
				compare("late", g.Late(now, 99), take(func(j join) bool { return !j.until.After(now) }))
			}
			at, ok := g.Next()
			if ok != (len(held) > 0) || g.Len() != len(held) {
				t.Fatalf("%d are held, next %v, want %d", g.Len(), ok, len(held))
			}
			if ok && !at.Equal(slices.MinFunc(held, func(a, b join) int { return cmp.Compare(a.until.UnixNano(), b.until.UnixNano()) }).until) {
				t.Fatalf("the next time is over at %v", at)
			}
		}
	})
}

// What an announcement or a part of a snapshot may hold it holds, to the change or to the byte, and
// no more: routers are not sent more of them than there must be.
func TestPartsAreFull(t *testing.T) {
	table := New("e", 1)
	const size = 256 // of a filter with what protobuf adds
	for i := range 4 * snapshotPart / size {
		table.Join(start, 0, fmt.Sprintf("%0*d", size-filterOverhead, i))
	}
	table.Join(start, 0, "z") // for which there is no room
	var sizes []int
	for _, a := range announceAll(table) {
		sizes = append(sizes, len(a.GetAdd()))
	}
	if want := []int{changesAtATime, changesAtATime, changesAtATime, changesAtATime, 1}; !slices.Equal(sizes, want) {
		t.Errorf("announced in parts of %v, want %v", sizes, want)
	}
	sizes = nil
	for _, p := range allParts(table.Snapshot()) {
		sizes = append(sizes, len(p.GetFilters()))
	}
	if n := snapshotPart / size; len(sizes) != 5 || sizes[0] != n || sizes[3] != n || sizes[4] != 1 {
		t.Errorf("a snapshot in parts of %v", sizes)
	}
}

// Longer names that take the places of shorter ones while a snapshot is taken take no room in it
// from what was announced before.
func TestWhatComesLaterTakesNoRoomInASnapshot(t *testing.T) {
	table := New("e", 1)
	for i := range 3000 {
		table.Join(start, 0, fmt.Sprintf("long/%04d/%s", i/2, strings.Repeat("x", 230)))
		table.Join(start, 0, fmt.Sprint("short/", i))
	}
	announceAll(table)
	s := table.Snapshot()
	held := map[string]bool{}
	for p := next(s); p != nil; p = next(s) {
		for _, f := range p.GetFilters() {
			held[f] = true
		}
		if p.GetPart() > 0 {
			continue
		}
		for i := range 3000 {
			table.Leave(start, 0, fmt.Sprint("short/", i))
		}
		announceAll(table)
		for i := range 3000 {
			table.Join(start, 0, fmt.Sprintf("late/%04d/%s", i, strings.Repeat("y", 240)))
		}
		announceAll(table)
	}
	for i := range 1500 {
		if f := fmt.Sprintf("long/%04d/%s", i, strings.Repeat("x", 230)); !held[f] {
			t.Fatalf("%.9s was announced before the snapshot and is not in it", f)
		}
	}
}

// A change waits for others 2 ms at most, however many come meanwhile.
func TestTheFirstChangeSaysWhenToAnnounce(t *testing.T) {
	table := New("e", 1)
	for round := range 3 {
		now := start.Add(time.Duration(round) * time.Second)
		table.Join(now, 0, fmt.Sprint(round))
		table.Join(now.Add(Coalesce/2), 0, fmt.Sprint(round, "/later"))
		if at, due := table.Due(); !due || !at.Equal(now.Add(Coalesce)) {
			t.Errorf("due at %v, %v", at, due)
		}
		announceAll(table)
	}
}

// What was announced is let go of though there are always more changes, and the count of them goes
// on.
func TestChangesThatNeverEndAreBounded(t *testing.T) {
	table := New("e", 1)
	for i := range 200 {
		for n := range changesAtATime {
			table.Join(start, 0, fmt.Sprint(i, "/", n))
		}
		if i == 0 {
			table.Join(start, 0, "one more")
			continue
		}
		if a := table.Announce(); len(a.GetAdd()) != changesAtATime {
			t.Fatalf("%d are announced at a time", len(a.GetAdd()))
		}
		if _, due := table.Due(); !due || table.Changes()-table.Told() != changesAtATime+1 || table.Told() != uint64(i*changesAtATime) {
			t.Fatalf("%d changes, %d of them told", table.Changes(), table.Told())
		}
	}
	if n := len(table.dirty); n > 4*changesAtATime {
		t.Errorf("%d changes are kept", n)
	}
}

// A walk over what loops want meets once whatever is wanted all the time, and nothing that nobody
// wants, whatever comes and goes between its slices.
func TestAWalkMeetsWhatStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New("e", 1)
		name := rapid.SampledFrom([]string{"a", "b", "c", "d/+", "e", "f", "g/#"})
		wanted, stayed, met := map[string]bool{}, map[string]bool{}, map[string]int{}
		change := func() {
			f := name.Draw(t, "name")
			if wanted[f] {
				table.Leave(start, 0, f)
				delete(stayed, f)
			} else {
				table.Join(start, 0, f)
			}
			if wanted[f] = !wanted[f]; rapid.Bool().Draw(t, "announce") {
				announceAll(table)
			}
		}
		for range rapid.IntRange(0, 30).Draw(t, "before") {
			change()
		}
		for f, is := range wanted {
			if is {
				stayed[f] = true
			}
		}
		for at, more := uint32(0), true; more; {
			at, more = table.Some(at, rapid.IntRange(1, 3).Draw(t, "most"), func(f string) {
				if met[f]++; !wanted[f] {
					t.Fatalf("nobody wants %s", f)
				}
			})
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				change()
			}
		}
		for f := range stayed {
			if met[f] != 1 {
				t.Fatalf("%s is met %d times", f, met[f])
			}
		}
	})
}

// A burst of changes leaves no memory behind; what the usual ones need is used again.
func TestABurstLeavesNoMemory(t *testing.T) {
	table := New("e", 1)
	table.Join(start, 0, "a")
	announceAll(table)
	if cap(table.dirty) == 0 {
		t.Error("the list of changes is made anew for each announcement")
	}
	for i := range 1<<16 + 1 {
		table.Join(start, 0, fmt.Sprint(i))
	}
	announceAll(table)
	if n := cap(table.dirty); n != 0 {
		t.Errorf("room for %d changes is kept", n)
	}
}

// A gate keeps nothing of joins that went, whichever way they did.
func TestAGateLetsGo(t *testing.T) {
	var g Gate
	for i := range uint32(10) {
		g.Add(start.Add(time.Duration(i)), uint64(10-i), Wait{Sub: i})
	}
	order, version := g.order, g.version
	if n := len(g.Applied(3, 2)) + len(g.Applied(3, 9)) + len(g.Late(start.Add(Patience+4), 1)) + len(g.Late(start.Add(Patience+4), 9)) + len(g.Applied(9, 9)); n != 10 || g.Len() != 0 {
		t.Fatalf("%d went", n)
	}
	for i := range order {
		if order[i] != nil || version[i] != nil {
			t.Errorf("entry %d is kept", i)
		}
	}
	if g.order != nil {
		t.Error("the list is kept")
	}
}
