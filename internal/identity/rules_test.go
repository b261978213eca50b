package identity

import (
	"slices"
	"testing"
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
