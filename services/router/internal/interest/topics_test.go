package interest

import (
	"testing"

	"pgregory.net/rapid"
)

// A part holds what a plain map would, whatever was added, removed and swept, and however often it
// grew and shrank. Names fall together as badly as can be: three homes, and the last of the table
// that goes on at its beginning.
func TestPartAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p part
		model := map[key]map[slot]bool{}
		homes := []uint64{0, 1 << 52, 1<<(64-partBits) - 1}
		drawKey := func() key {
			home := rapid.SampledFrom(homes).Draw(t, "home")
			return key{sum: uint64(rapid.IntRange(0, 20).Draw(t, "name")), keyed: home}
		}
		drawSlot := func() slot { return slot(rapid.IntRange(1, 9).Draw(t, "slot")) }
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 20).Draw(t, "step") {
			default:
				k, s := drawKey(), drawSlot()
				p.room(1, rapid.SampledFrom([]int{0, 10, 1000}).Draw(t, "expected"))
				if p.add(k, s) == model[k][s] {
					t.Fatalf("added %v to %v, held %v", s, k, model[k])
				}
				if model[k] == nil {
					model[k] = map[slot]bool{}
				}
				model[k][s] = true
			case 0, 1, 2, 3, 4, 5, 6:
				k, s := drawKey(), drawSlot()
				if p.remove(k, s) != model[k][s] {
					t.Fatalf("removed %v from %v, held %v", s, k, model[k])
				}
				delete(model[k], s)
			case 7:
				from, to := drawSlot(), drawSlot()
				gone := func(s slot) bool { return from <= s && s <= to }
				p.sweep(gone)
				for _, set := range model {
					for s := range set {
						if gone(s) {
							delete(set, s)
						}
					}
				}
			}
			agree(t, &p, model)
		}
		p.sweep(func(slot) bool { return true })
		if p.n != 0 || len(p.entries) > 2*minEntries || len(p.spills().free) != len(p.spills().lists) {
			t.Fatalf("%d topics in %d entries, %d lists of which %d are free", p.n, len(p.entries), len(p.spills().lists), len(p.spills().free))
		}
	})
}

func agree(t *rapid.T, p *part, model map[key]map[slot]bool) {
	n := 0
	for k, want := range model {
		if len(want) > 0 {
			n++
		}
		if len(p.entries) == 0 {
			continue
		}
		at, ok := p.find(k)
		if ok != (len(want) > 0) {
			t.Fatalf("%v is there: %v, want %v", k, ok, want)
		}
		if !ok {
			continue
		}
		got := map[slot]bool{}
		p.sets.each(p.entries[at].members, func(s slot) { got[s] = true })
		if len(got) != len(want) {
			t.Fatalf("%v: %v, want %v", k, got, want)
		}
		for s := range want {
			if !got[s] {
				t.Fatalf("%v: %v, want %v", k, got, want)
			}
		}
	}
	if p.n != n || p.n*4 > len(p.entries)*3 {
		t.Fatalf("%d topics in %d entries, want %d", p.n, len(p.entries), n)
	}
}
