package topic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// visits is how many nodes a match of topic meets below a node and at it: what match does, counted.
func (nd *node[V]) visits(topic string) int {
	level, rest, last := cut(topic)
	n := 1
	for _, text := range []string{level, "+"} {
		if next := nd.child(text); next != nil && last {
			n++
		} else if next != nil {
			n += next.visits(rest)
		}
	}
	return n
}

// heaviest is met from scratch.
func (nd *node[V]) heaviest() int {
	plus, exact := 0, 0
	if nd.below != nil {
		for _, next := range nd.below.exact {
			exact = max(exact, next.heaviest())
		}
		if nd.below.plus != nil {
			plus = nd.below.plus.heaviest()
		}
	}
	return 1 + plus + exact
}

// combinations is every choice of "a" and "+" for each of so many levels, followed by end.
func combinations(levels int, end string) (all []string) {
	for n := range 1 << levels {
		var b strings.Builder
		for i := range levels {
			b.WriteString([]string{"a/", "+/"}[n>>i&1])
		}
		all = append(all, b.String()+end)
	}
	return all
}

// Filters made so that a topic meets as many levels as can be: what Fits lets in stays below the
// bound and matches as it says, and what was refused fits once others are gone.
func TestAHostileMixIsBounded(t *testing.T) {
	for _, levels := range []int{4, 7, 8, 12} {
		filters := combinations(levels, "z")
		for n := range levels {
			filters = append(filters, combinations(n, "#")...)
		}
		rand.New(rand.NewPCG(1, uint64(levels))).Shuffle(len(filters), func(i, j int) { filters[i], filters[j] = filters[j], filters[i] })
		var x Index[string]
		var held, refused []string
		for _, f := range filters {
			if x.Fits(f) {
				held = append(held, f)
				x.Add(f, f)
			} else {
				refused = append(refused, f)
			}
		}
		if few := levels < 8; few != (len(refused) == 0) {
			t.Fatalf("%d levels: %d of %d filters were refused", levels, len(refused), len(filters))
		}
		most := 0
		for n := range 60 {
			topic := strings.Repeat("a/", levels) + []string{"z", "b", "a/a"}[n%3]
			if n >= 3 {
				parts := strings.Split(topic, "/")
				parts[n%len(parts)] = "b"
				topic = strings.Join(parts, "/")
			}
			most = max(most, x.root.visits(topic))
			var want []string
			for _, f := range held {
				if Match(f, topic) {
					want = append(want, f)
				}
			}
			got := x.Match(nil, topic)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %d match, want %d", topic, len(got), len(want))
			}
		}
		if most > MaxMet || len(refused) > 0 && most < MaxMet/2 {
			t.Fatalf("%d levels: a match met %d of at most %d", levels, most, MaxMet)
		}
		for _, f := range held {
			x.Remove(f, f)
		}
		for _, f := range refused[:min(1, len(refused))] {
			if !x.Fits(f) {
				t.Fatalf("%s does not fit into nothing", f)
			}
		}
	}
}

// Whatever the mix, filters of eight levels fit.
func TestEightLevelsAlwaysFit(t *testing.T) {
	var x Index[string]
	for levels := range 8 {
		for _, end := range []string{"a", "+", "+/#"} {
			for _, f := range combinations(levels, end) {
				if !x.Fits(f) {
					t.Fatalf("%s does not fit", f)
				}
				x.Add(f, f)
			}
		}
	}
	if got := x.root.visits(strings.Repeat("a/", 7) + "a"); got != 1<<9-1 || got > MaxMet {
		t.Fatalf("a match met %d", got)
	}
}

// Who makes a mess of some topics does not keep others from theirs.
func TestAMixElsewhereDoesNotCount(t *testing.T) {
	var x Index[string]
	for _, f := range combinations(12, "z") {
		if f = "evil/" + f; x.Fits(f) {
			x.Add(f, f)
		}
	}
	for _, f := range []string{"room/+/chat", "+/+/+/+/+/b/b/b", "room/+/+/a/b/c/d/e/f/+", "+", "evil/+/b", "evil/+/#", "#"} {
		if !x.Fits(f) {
			t.Errorf("%s does not fit", f)
		}
	}
	if x.Fits("evil/" + strings.Repeat("+/", 100) + "z") {
		t.Error("there is room for a hundred levels more")
	}
}

// What a match meets at most is known at any time, and beforehand.
func TestWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index[string]
		held := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f := genFilter(t)
			if would := x.root.with(f); rapid.IntRange(0, 2).Draw(t, "add") > 0 {
				x.Add(f, f)
				held[f] = true
				if got := x.root.met(); got != would {
					t.Fatalf("%d with %s, foretold %d", got, f, would)
				}
			} else {
				x.Remove(f, f)
				delete(held, f)
			}
			if got, want := x.root.met(), x.root.heaviest(); got != want {
				t.Fatalf("weighs %d, want %d: %v", got, want, held)
			}
			if name := genTopic(t); x.root.visits(name) > x.root.met() {
				t.Fatalf("%s meets %d of at most %d", name, x.root.visits(name), x.root.met())
			}
		}
	})
}

// A match of what Fits costs no more where someone made filters for it.
func BenchmarkHostileMix(b *testing.B) {
	for _, levels := range []int{8, 12, 16} {
		b.Run(fmt.Sprint(levels), func(b *testing.B) {
			var x Index[int]
			for i, f := range combinations(levels, "z") {
				if x.Fits(f) {
					x.Add(f, i)
				}
			}
			topic := strings.Repeat("a/", levels) + "b"
			var found []int
			b.ReportAllocs()
			for b.Loop() {
				found = x.Match(found[:0], topic)
			}
		})
	}
}
