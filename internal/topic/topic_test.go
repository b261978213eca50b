package topic

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	for _, ok := range []string{"a", "room/1/chat", "$dead/x", "ä/ö", strings.Repeat("x", 255)} {
		if err := Check(ok); err != nil {
			t.Errorf("Check(%q): %v", ok, err)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "a/+", "#", "a\x00", "a\x7f", "\xff", strings.Repeat("x", 256)} {
		if Check(bad) == nil {
			t.Errorf("Check(%q) passed", bad)
		}
	}
	for _, ok := range []string{"#", "+", "a/+/b", "a/#", "+/#"} {
		if err := CheckFilter(ok); err != nil {
			t.Errorf("CheckFilter(%q): %v", ok, err)
		}
	}
	for _, bad := range []string{"#/a", "a+/b", "a/b#", "a/#/b", ""} {
		if CheckFilter(bad) == nil {
			t.Errorf("CheckFilter(%q) passed", bad)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		{"a/#", "a", true},
		{"a/#", "a/b/c", true},
		{"a/+", "a", false},
		{"a/+", "a/b", true},
		{"a/+", "a/b/c", false},
		{"+/b", "a/b", true},
		{"#", "a/b", true},
		{"#", "$dead/b", false},
		{"+/b", "$dead/b", false},
		{"$dead/#", "$dead/b", true},
		{"a/b", "a/b", true},
		{"a/b", "a", false},
		{"a/b", "a/bc", false},
	} {
		if got := Match(c.filter, c.topic); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.filter, c.topic, got)
		}
	}
}

var genLevel = rapid.SampledFrom([]string{"a", "b", "cc", "$x"})

func genTopic(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(genLevel, 1, 4).Draw(t, "levels"), "/")
}

func genFilter(t *rapid.T) string {
	levels := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "cc", "$x", "+"}), 1, 4).Draw(t, "levels")
	if rapid.Bool().Draw(t, "rest") {
		levels = append(levels, "#")
	}
	return strings.Join(levels, "/")
}

// The index agrees with Match, whatever was added and removed before.
func TestIndexAgreesWithMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index[string]
		held := map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			f := genFilter(t)
			if rapid.Bool().Draw(t, "add") {
				if x.Add(f, f) == held[f] {
					t.Fatalf("Add(%q) with held=%v", f, held[f])
				}
				held[f] = true
			} else {
				if x.Remove(f, f) != held[f] {
					t.Fatalf("Remove(%q) with held=%v", f, held[f])
				}
				delete(held, f)
			}
			var want []string
			topic := genTopic(t)
			for f := range held {
				if Match(f, topic) {
					want = append(want, f)
				}
			}
			got := x.Match(nil, topic)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("topic %q: got %q, want %q", topic, got, want)
			}
			if x.Len() != len(held) {
				t.Fatalf("Len %d, held %d", x.Len(), len(held))
			}
		}
		for f := range held {
			x.Remove(f, f)
		}
		if !x.root.empty() {
			t.Fatal("empty levels are left")
		}
	})
}

func FuzzMatch(f *testing.F) {
	f.Add("a/+/#", "a/b/c")
	f.Add("#", "$x")
	f.Fuzz(func(t *testing.T, filter, topic string) {
		if CheckFilter(filter) != nil || Check(topic) != nil {
			return
		}
		var x Index[int]
		x.Add(filter, 1)
		if got := len(x.Match(nil, topic)) == 1; got != Match(filter, topic) {
			t.Fatalf("index says %v for %q against %q", got, filter, topic)
		}
	})
}

// Filters that both match a topic meet, and a topic that is a filter meets what matches it.
func TestFiltersMeet(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a/+", "+/b", true},
		{"a/+", "a", false},
		{"a/#", "a", true},
		{"a/#", "+", true},
		{"a/#", "b/#", false},
		{"a/+/c", "a/b/#", true},
		{"a/+/c", "a/b/d", false},
		{"+/+", "a/b/c", false},
		{"+/#", "a", true},
	} {
		if Meet(c.a, c.b) != c.want || Meet(c.b, c.a) != c.want {
			t.Errorf("Meet(%q, %q) is not %v", c.a, c.b, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, name := genFilter(t), genFilter(t), genTopic(t)
		if Match(a, name) && Match(b, name) && (!Meet(a, b) || !Meet(b, a)) {
			t.Fatalf("%q and %q both match %q", a, b, name)
		}
	})
}

// What is announced of members of groups finds them in each topic that they get, and is never taken
// for a subscription of its own.
func TestAnnouncedMembersAreFound(t *testing.T) {
	level := rapid.StringMatching(`[a-z]{1,60}|[a-z]{240,250}`)
	rapid.Check(t, func(t *rapid.T) {
		var filter, topic []string
		for range rapid.IntRange(1, 8).Draw(t, "levels") {
			name := level.Draw(t, "level")
			topic = append(topic, name)
			filter = append(filter, rapid.SampledFrom([]string{name, "+"}).Draw(t, "or +"))
		}
		if rapid.Bool().Draw(t, "all below") {
			filter[len(filter)-1] = "#"
		}
		f, name := strings.Join(filter, "/"), strings.Join(topic, "/")
		if CheckFilter(f) != nil || Check(name) != nil {
			t.Skip("too long")
		}
		got := AnnouncedMembers(f)
		if err := CheckFilter(got); err != nil || !AnnouncesMembers(got) {
			t.Fatalf("%q is announced as %q: %v", f, got, err)
		}
		if !Match(got, MembersOf(name)) {
			t.Fatalf("%q, for %q, does not match %q", got, f, name)
		}
		if len(f) < MaxLen-len(members) && got != MembersOf(f) {
			t.Fatalf("%q is announced as %q", f, got)
		}
	})
}
