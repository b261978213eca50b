package topic

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sequences is every sequence of one to most of the levels.
func sequences(most int, levels ...string) (all []string) {
	last := []string{""}
	for range most {
		var next []string
		for _, begin := range last {
			for _, level := range levels {
				next = append(next, strings.TrimPrefix(begin+"/"+level, "/"))
			}
		}
		all = append(all, next...)
		last = next
	}
	return all
}

// world is every filter of so many levels, and which topics each matches. Topics go two levels
// deeper and know a level, z, that no filter names, as real ones do.
type world struct {
	filters []string
	topics  []string
	matches [][]bool
}

func newWorld(levels int) (w world) {
	w.filters = append(sequences(levels, "a", "+", "$s"), "#")
	for _, f := range w.filters[:len(w.filters)-1] {
		w.filters = append(w.filters, f+"/#")
	}
	w.topics = sequences(levels+2, "a", "z", "$s")
	for _, f := range w.filters {
		row := make([]bool, len(w.topics))
		for i, name := range w.topics {
			row[i] = Match(f, name)
		}
		w.matches = append(w.matches, row)
	}
	return w
}

// contained is ContainedIn from scratch.
func (w *world) contained(inner int, outers ...int) bool {
	for i, matched := range w.matches[inner] {
		if matched && !slices.ContainsFunc(outers, func(outer int) bool { return w.matches[outer][i] }) {
			return false
		}
	}
	return true
}

// Of every two small filters, Contains says what their topics say.
func TestContainsIsWhatTopicsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	yes := 0
	for o, outer := range w.filters {
		for i, inner := range w.filters {
			want := w.contained(i, o)
			if Contains(outer, inner) != want {
				t.Errorf("Contains(%q, %q) is not %v", outer, inner, want)
			}
			if ContainedIn(inner, outer) != want {
				t.Errorf("ContainedIn(%q, %q) is not %v", inner, outer, want)
			}
			if want {
				yes++
			}
		}
	}
	if yes < len(w.filters) || yes > len(w.filters)*len(w.filters)/2 {
		t.Errorf("%d of %d filters squared are contained", yes, len(w.filters))
	}
}

// Of every small filter and every two or three others, ContainedIn says what their topics say, also
// where none of the others contains the filter alone.
func TestUnionsAreWhatTopicsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(2)
	together := 0
	for i, inner := range w.filters {
		for a := range w.filters {
			for b := a; b < len(w.filters); b++ {
				for c := b; c < len(w.filters); c++ {
					want := w.contained(i, a, b, c)
					if ContainedIn(inner, w.filters[a], w.filters[b], w.filters[c]) != want {
						t.Fatalf("ContainedIn(%q, %q, %q, %q) is not %v", inner, w.filters[a], w.filters[b], w.filters[c], want)
					}
					if want && !w.contained(i, a) && !w.contained(i, b) && !w.contained(i, c) {
						together++
					}
				}
			}
		}
	}
	if together == 0 {
		t.Error("no filter is contained in several others only")
	}
}

// What a filter adds to a cover is named by the answer of Add.
func TestCoverTellsWhoTakesPart(t *testing.T) {
	c := NewCover("a/#")
	for _, step := range []struct {
		outer       string
		part, whole bool
	}{
		{"b/#", false, false},
		{"a/x", false, false},
		{"a/+/x/#", false, false},
		{"a/+/+/#", true, false},
		{"a", true, false},
		{"a/+", true, true},
	} {
		if part := c.Add(step.outer); part != step.part || c.Whole() != step.whole {
			t.Errorf("after %q: part %v, whole %v", step.outer, part, c.Whole())
		}
	}
}

// The longest filters there are stay within the bounds of a cover.
func TestTheDeepestFilterIsCovered(t *testing.T) {
	deepest := strings.Repeat("+/", maxLevels-1) + "#"
	if err := CheckFilter(deepest); err != nil || CheckFilter("+/"+deepest) == nil {
		t.Fatalf("%q is not the deepest filter: %v", deepest, err)
	}
	if !ContainedIn(deepest, deepest) || !ContainedIn(deepest, "#") || ContainedIn("#", deepest) {
		t.Error("the deepest filter is not in itself, or everything is in it")
	}
	var all []string
	for n := 1; n < maxLevels; n++ {
		all = append(all, strings.TrimSuffix(strings.Repeat("+/", n), "/"))
	}
	if ContainedIn("#", all...) {
		t.Error("filters of all depths but the last contain everything")
	}
	for _, last := range []string{deepest, strings.Repeat("+/", maxLevels-1) + "+"} {
		if !ContainedIn("#", append(all, last)...) {
			t.Errorf("filters of all depths, and %q, do not contain everything", last)
		}
	}
}

// witnesses are topics that inner matches and that no filter matches by a level's name where inner
// has a wildcard.
func witnesses(inner string) (topics []string) {
	fresh := "~fresh~"
	levels := strings.Split(inner, "/")
	open := levels[len(levels)-1] == "#"
	if open {
		levels = levels[:len(levels)-1]
	}
	for i, level := range levels {
		if level == "+" {
			levels[i] = fresh
		}
	}
	for more := range 8 {
		if name := strings.Join(levels, "/"); Check(name) == nil {
			topics = append(topics, name)
		}
		if levels = append(levels, fresh); !open && more == 0 {
			break
		}
	}
	return topics
}

// Filters of whatever levels: contained means that every topic that was tried is matched, and not
// contained that a witness is not.
func TestContainmentHasWitnesses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := genFilter(t)
		var outers []string
		for range rapid.IntRange(1, 6).Draw(t, "outers") {
			outers = append(outers, genFilter(t))
		}
		contained := ContainedIn(inner, outers...)
		matched := func(name string) bool {
			return slices.ContainsFunc(outers, func(outer string) bool { return Match(outer, name) })
		}
		if name := genTopic(t); contained && Match(inner, name) && !matched(name) {
			t.Fatalf("%q is in %q, which do not match %q", inner, outers, name)
		}
		if tried := witnesses(inner); contained != !slices.ContainsFunc(tried, func(name string) bool { return !matched(name) }) {
			t.Fatalf("contained %v of %q in %q is not what %q say", contained, inner, outers, tried)
		}
	})
}

func FuzzContains(f *testing.F) {
	f.Add("a/+/#", "a/b/#", "a/b/c")
	f.Add("#", "$x/#", "$x")
	f.Add("+/#", "#", "a")
	f.Fuzz(func(t *testing.T, outer, inner, name string) {
		if CheckFilter(outer) != nil || CheckFilter(inner) != nil {
			return
		}
		contained := Contains(outer, inner)
		if ContainedIn(inner, outer) != contained {
			t.Fatalf("a union of one is not the one: %q in %q", inner, outer)
		}
		if contained && !Meet(outer, inner) {
			t.Fatalf("%q is in %q, and they do not meet", inner, outer)
		}
		if Check(name) == nil && contained && Match(inner, name) && !Match(outer, name) {
			t.Fatalf("%q is in %q, which does not match %q", inner, outer, name)
		}
		if contained || strings.Contains(outer, "~fresh~") {
			return
		}
		if tried := witnesses(inner); len(inner) < 100 && !slices.ContainsFunc(tried, func(name string) bool { return !Match(outer, name) }) {
			t.Fatalf("%q is not in %q, which matches %q", inner, outer, tried)
		}
	})
}

// BenchmarkContains looks for a filter among the grants of a client, as a Subscribe does.
func BenchmarkContains(b *testing.B) {
	var outers []string
	for _, name := range sequences(3, "room", "team", "site", "+") {
		outers = append(outers, name+"/chat/#")
	}
	outers = outers[:64]
	b.ReportAllocs()
	for b.Loop() {
		if ContainedIn("site/room/7/#", outers...) {
			b.Fatal("contained")
		}
	}
}
