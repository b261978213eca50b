package interest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
)

func genFilter(t *rapid.T) string {
	levels := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "cc", "$x", "+", "+"}), 1, 5).Draw(t, "levels")
	if rapid.Bool().Draw(t, "rest") {
		levels = append(levels, "#")
	}
	return strings.Join(levels, "/")
}

// The index agrees with topic.Match, whatever was added, removed and swept before, and nothing is
// left once nobody wants anything.
func TestWildAgreesWithMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		peers := map[slot]*Peer{}
		for s := slot(1); s < 30; s++ {
			peers[s] = &Peer{Edge: Edge{ID: fmt.Sprint(s)}}
			table.live.room(s)
			table.live.replace(0, s, peers[s])
		}
		w := &table.wild
		held := map[string]map[slot]bool{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			f, s := genFilter(t), slot(rapid.IntRange(1, 29).Draw(t, "slot"))
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				if w.add(f, s) == held[f][s] {
					t.Fatalf("added %s for %d, held %v", f, s, held[f])
				}
				if held[f] == nil {
					held[f] = map[slot]bool{}
				}
				held[f][s] = true
			case 0, 1, 2:
				if w.remove(f, s) != held[f][s] {
					t.Fatalf("removed %s for %d, held %v", f, s, held[f])
				}
				delete(held[f], s)
			case 3:
				gone := func(x slot) bool { return x%4 == s%4 }
				for x := range peers {
					if gone(x) {
						w.gone(x)
					}
				}
				sweepAll(w, gone)
				for _, set := range held {
					for x := range set {
						if gone(x) {
							delete(set, x)
						}
					}
				}
			}
			name := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "cc", "$x"}), 1, 6).Draw(t, "topic"), "/")
			var want, got []string
			pairs := 0
			for s, peer := range peers {
				for f, set := range held {
					if set[s] && topic.Match(f, name) {
						want = append(want, peer.ID)
						break
					}
				}
			}
			for _, set := range held {
				pairs += len(set)
			}
			for _, p := range table.Lookup(nil, name) {
				got = append(got, p.ID)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%s goes to %v, want %v of %v", name, got, want, held)
			}
			if int(w.held.Load()) != pairs {
				t.Fatalf("%d pairs, want %d", w.held.Load(), pairs)
			}
		}
		sweepAll(w, func(slot) bool { return true })
		free := uint32(0)
		for id := w.free; id != 0; id = w.at(id).parent {
			free++
		}
		if refs := refsOf(w); w.made > 0 && free+1 != w.made || refs != 0 || w.held.Load() != 0 {
			t.Fatalf("%d nodes, %d free, %d refs, %d pairs", w.made, free, refs, w.held.Load())
		}
	})
}

func sweepAll(w *wild, gone func(slot) bool) {
	for part := range parts {
		w.sweep(part, gone)
	}
}

func refsOf(w *wild) (n int) {
	for i := range w.index {
		n += w.index[i].n
	}
	return n
}

// Filters made so that a topic's match meets 2ⁿ nodes cost no more than maxVisits of them: then
// whoever has wildcards gets the message.
func TestAHostileMixIsBounded(t *testing.T) {
	s := begin(t)
	s.announce("far", 1, 1, "elsewhere/#")
	s.announce("plain", 1, 1, "elsewhere")
	s.announce("evil", 1, 1, hostile(12)...)
	s.expect(strings.TrimSuffix(strings.Repeat("a/", 13), "/"), "evil.1", "far.1")
	s.expect("b/a", "evil.1") // the ordinary way
	s.expect("b")
}

// hostile is every choice of "a" and "+" for each of so many levels, below something of which only
// the last level differs.
func hostile(levels int) []string {
	list := []string{"+/a"}
	for n := range 1 << levels {
		var b strings.Builder
		for i := range levels {
			b.WriteString([]string{"a/", "+/"}[n>>i&1])
		}
		list = append(list, b.String()+"z")
	}
	return list
}
