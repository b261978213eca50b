package interest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What was wanted and is not any more costs nothing: no memory, no part of a snapshot, no bytes that are counted.
func TestLeavingFreesEverything(t *testing.T) {
	table := New("e", 1)
	for round := range 3 {
		for i := range 3 * slabChunk {
			table.Join(start, 0, fmt.Sprint(round, "/", i))
			table.Join(start, 0, fmt.Sprint("gone before it was announced/", i))
			table.Leave(start, 0, fmt.Sprint("gone before it was announced/", i))
		}
		table.Announce()
		for i := range 3 * slabChunk {
			table.Leave(start, 0, fmt.Sprint(round, "/", i))
		}
		table.Announce()
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
	table.Announce()
	for i := range 10 * slabChunk {
		table.Join(start, 0, fmt.Sprint(i))
		table.Announce()
		table.Leave(start, 0, fmt.Sprint(i))
		table.Announce()
	}
	if table.slab.end > slabChunk {
		t.Errorf("%d places for two filters", table.slab.end)
	}
}

// A gate lets each join go once: when its version is applied, or else when its time is over; the lowest versions first.
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
				compare("applied", g.Applied(version), take(func(j join) bool { return j.version <= version }))
			case "late":
				compare("late", g.Late(now), take(func(j join) bool { return !j.until.After(now) }))
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
