package identity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The rules of a verb are those that Allows looks at: whatever it names is among them, and each of
// them is allowed by itself.
func TestRules(t *testing.T) {
	ann := Principal{User: "ann", Grants: grants(t, "subscribe:room/+/chat", "publish:team/{user}", "claim:seat/#", "group:workers/jobs/#", "publish:x")}
	for verb, want := range map[Verb]string{Subscribe: "rule[0] built-in", Publish: "rule[1] rule[4]", Claim: "rule[2]", Group: "rule[3]", verbs: ""} {
		rules := ann.Rules(verb)
		if got := sources(rules); got != want {
			t.Errorf("%v: %q, want %q", verb, got, want)
		}
		for _, r := range rules {
			if by, allowed := ann.Allows(verb, Fill(r.Filter, "ann")); !allowed || !slices.Equal(by, []Rule{r}) {
				t.Errorf("%v %s: %v, %v", verb, r.Filter, allowed, by)
			}
		}
	}
	ann.Rules(Subscribe)[0].Filter = "changed"
	if got := ann.Rules(Subscribe)[0].Filter; got != "room/+/chat" {
		t.Errorf("a caller has changed the rules that others share: %q", got)
	}
	if n := len((&Principal{User: "bob"}).Rules(Subscribe)); n != 1 {
		t.Errorf("%d rules without grants", n)
	}
	if (&Principal{Grants: ann.Grants}).Rules(Subscribe) != nil {
		t.Error("nobody has rules")
	}
	if all := Verbs(); len(all) != int(verbs) || all[len(all)-1] != verbs-1 {
		t.Errorf("verbs %v", all)
	}
}

// Grants with teams allow what the rules of all of them do in one set, and name rules that do: the
// token's before the teams'.
func TestTeamsAreAUnion(t *testing.T) {
	filter := rapid.SampledFrom([]string{"a", "a/#", "a/+", "a/b", "a/+/#", "+", "+/b", "#", "a/{user}", "b", "b/#", "g/a", "g/a/#", "g/#"})
	rapid.Check(t, func(t *rapid.T) {
		var parts []*Grants
		var all []Rule
		for part := range rapid.IntRange(1, 4).Draw(t, "parts") {
			var rules []Rule
			for range rapid.IntRange(0, 3).Draw(t, "rules") {
				rules = append(rules, Rule{Verb(rapid.IntRange(0, int(verbs)-1).Draw(t, "verb")), filter.Draw(t, "rule"), fmt.Sprint("part", part)})
			}
			g, err := NewGrants(rules)
			if err != nil {
				t.Fatal(err)
			}
			if g != nil || part == 0 {
				parts = append(parts, g)
			}
			all = append(all, rules...)
		}
		one, err := NewGrants(all)
		if err != nil {
			t.Fatal(err)
		}
		union, oracle := Principal{User: "ann", Grants: parts[0].With(parts[1:]...)}, Principal{User: "ann", Grants: one}
		if union.Grants.Len() != one.Len() {
			t.Fatalf("%d rules of %d", union.Grants.Len(), one.Len())
		}
		for _, verb := range Verbs() {
			if a, b := union.Rules(verb), oracle.Rules(verb); !slices.Equal(a, b) {
				t.Fatalf("%v: rules %v, want %v", verb, a, b)
			}
			for range 5 {
				asked := Fill(filter.Draw(t, "asked"), "ann")
				gotBy, got := union.Allows(verb, asked)
				wantBy, want := oracle.Allows(verb, asked)
				if got != want || !slices.Equal(gotBy, wantBy) {
					t.Fatalf("%v %s: %v by %v, want %v by %v", verb, asked, got, gotBy, want, wantBy)
				}
			}
			got, _ := union.AllowsGroup("g", "a")
			if want, _ := oracle.AllowsGroup("g", "a"); !slices.Equal(got, want) {
				t.Fatalf("group: %v, want %v", got, want)
			}
		}
		sum := 0
		for _, p := range parts {
			sum += Rights{Grants: p}.Weight()
		}
		if w := union.Rights().Weight(); w != sum {
			t.Fatalf("weight %d, want %d", w, sum)
		}
		for i, source := range union.Rights().Sources() {
			if source == "part0" || i > 3 {
				t.Fatalf("sources: %v", union.Rights().Sources())
			}
		}
	})
}
