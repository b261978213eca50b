package identity

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/topic"
)

func grants(t testing.TB, rules ...string) *Grants {
	var all []Rule
	for i, text := range rules {
		name, filter, _ := strings.Cut(text, ":")
		verb, ok := ParseVerb(name)
		if !ok {
			t.Fatalf("no verb %q", name)
		}
		all = append(all, Rule{verb, filter, fmt.Sprintf("rule[%d]", i)})
	}
	g, err := NewGrants(all)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func sources(rules []Rule) string {
	var all []string
	for _, r := range rules {
		all = append(all, r.Source)
	}
	return strings.Join(all, " ")
}

func TestAllows(t *testing.T) {
	ann := Principal{User: "ann", Grants: grants(t, "subscribe:room/+/chat", "subscribe:team/{user}", "subscribe:team/{user}/+/#",
		"publish:room/1/chat", "claim:seat/#", "group:workers/jobs/#")}
	if err := ann.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		verb   Verb
		filter string
		by     string // empty: refused
	}{
		{Subscribe, "room/1/chat", "rule[0]"},
		{Subscribe, "room/+/chat", "rule[0]"},
		{Subscribe, "room/#", ""},
		{Subscribe, "room/1/chat/#", ""},
		{Subscribe, "user/ann", "built-in"},
		{Subscribe, "user/ann/#", "built-in"},
		{Subscribe, "user/bob/#", ""},
		{Subscribe, "user/+/#", ""},
		{Subscribe, "team/ann/#", "rule[1] rule[2]"},
		{Subscribe, "team/bob", ""},
		{Subscribe, "team/{user}", ""},
		{Subscribe, "#", ""},
		{Subscribe, "a//b", ""},
		{Subscribe, "", ""},
		{Publish, "room/1/chat", "rule[3]"},
		{Publish, "room/2/chat", ""},
		{Publish, "user/ann/x", ""},
		{Claim, "seat/7", "rule[4]"},
		{Group, "workers/jobs/+", "rule[5]"},
		{verbs, "room/1/chat", ""},
	} {
		by, allowed := ann.Allows(c.verb, c.filter)
		if sources(by) != c.by || allowed != (c.by != "") {
			t.Errorf("%v %q is allowed: %v by %q, want %q", c.verb, c.filter, allowed, sources(by), c.by)
		}
	}
	if by, allowed := ann.AllowsGroup("workers", "jobs/7"); !allowed || sources(by) != "rule[5]" {
		t.Errorf("group: %v", by)
	}
	for _, name := range []string{"", "+", "#", "others", "workers/jobs"} {
		if _, allowed := ann.AllowsGroup(name, "jobs/7"); allowed {
			t.Errorf("group %q is allowed", name)
		}
	}
	for _, nobody := range []Principal{{}, {Grants: ann.Grants}} {
		if _, allowed := nobody.Allows(Subscribe, "room/1/chat"); allowed || nobody.AllowsClient("c") {
			t.Error("nobody is allowed something")
		}
	}
}

// A name can't make a grant wider than it is with any other name: whatever a name that passes is
// allowed, is the grant with that name in it, level by level.
func TestNamesDoNotWidenGrants(t *testing.T) {
	for _, bad := range []string{"", "+", "#", "a/b", "/", "a+", "a#b", "$dead", "client:x", "backend:", "a\x00", "a\n", "a\x7f", "\u0085", "\xff", "\ufffd", strings.Repeat("x", MaxUser+1)} {
		p := Principal{User: bad}
		if p.Check() == nil {
			t.Errorf("the name %q passes", bad)
		}
	}
	template := []string{"inbox", placeholder, "x"}
	g := grants(t, "subscribe:"+strings.Join(template, "/"), "subscribe:{user}/all")
	for _, name := range []string{"ann", "{user}", "*", "a b", "ä", "ann{user}", "~", strings.Repeat("x", MaxUser)} {
		p := Principal{User: name, Grants: g}
		if err := p.Check(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		for _, want := range []string{"inbox/" + name + "/x", name + "/all", "user/" + name + "/x"} {
			if _, allowed := p.Allows(Subscribe, want); !allowed || topic.CheckFilter(want) != nil {
				t.Errorf("%q is not allowed %q", name, want)
			}
		}
		for _, other := range []string{"inbox/+/x", "inbox/eve/x", "inbox/#", "+/all", "$dead/all", "user/eve/x", "user/#"} {
			if by, allowed := p.Allows(Subscribe, other); allowed {
				t.Errorf("%q is allowed %q by %v", name, other, by)
			}
		}
	}
}

func TestBadGrants(t *testing.T) {
	for _, filter := range []string{"", "a//b", "a/#/b", "a+", "room/{id}", "room/{user}x", "room/{user", "x/}", strings.Repeat("x", 256)} {
		if _, err := NewGrants([]Rule{{Publish, filter, "pm_pub[0]"}}); err == nil || !strings.Contains(err.Error(), "pm_pub[0]") {
			t.Errorf("%q: %v", filter, err)
		}
	}
	var many []Rule
	for i := range MaxRules {
		many = append(many, Rule{Claim, fmt.Sprint("seat/", i), ""}, Rule{Group, fmt.Sprint("g/", i), ""})
	}
	if _, err := NewGrants(many); err != nil {
		t.Error(err)
	}
	if _, err := NewGrants(append(many, Rule{Claim, "x", ""})); err == nil {
		t.Error("more rules than there may be")
	}
	if _, err := NewGrants([]Rule{{verbs, "x", ""}}); err == nil {
		t.Error("an unknown verb")
	}
	long := Principal{User: strings.Repeat("x", MaxUser), Grants: grants(t, "publish:"+strings.Repeat("y", 70)+"/{user}")}
	if err := long.Check(); err == nil || !strings.Contains(err.Error(), "rule[0]") {
		t.Errorf("a filter of 251 bytes: %v", err)
	}
}

func TestClientIDs(t *testing.T) {
	for _, c := range []struct {
		user, pattern, id string
		want              bool
	}{
		{"ann", "{user}-*", "ann-phone", true},
		{"ann", "{user}-*", "bob-phone", false},
		{"ann", "{user}", "ann", true},
		{"ann", "{user}", "anna", false},
		{"*", "{user}", "bob", false},
		{"*", "{user}", "*", true},
		{"ann", "*", "", true},
		{"ann", "x", "", false},
	} {
		p := Principal{User: c.user, Clients: []string{c.pattern}}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		if p.AllowsClient(c.id) != c.want {
			t.Errorf("%q with %q: %q is not %v", c.user, c.pattern, c.id, c.want)
		}
	}
	if !(&Principal{User: "ann"}).AllowsClient("any") {
		t.Error("no pattern allows nothing")
	}
	for _, bad := range []string{"", "a*b", "**", "{id}", strings.Repeat("x", 65)} {
		if (&Principal{User: "ann", Clients: []string{bad}}).Check() == nil {
			t.Errorf("the pattern %q passes", bad)
		}
	}
}

// Users with the same rights share them, and rights that nobody has are forgotten.
func TestGrantsAreShared(t *testing.T) {
	rule := "subscribe:shared/" + t.Name() + "/{user}"
	a, b := grants(t, rule, "publish:x"), grants(t, rule, "publish:x")
	if a != b {
		t.Error("the same rules are held twice")
	}
	if grants(t, rule) == a || grants(t, rule, "publish:y") == a {
		t.Error("different rules are one")
	}
	if allocs := testing.AllocsPerRun(100, func() {
		_, _ = (&Principal{User: "ann", Grants: a}).Allows(Publish, "x")
	}); allocs != 0 {
		t.Errorf("%v allocations to find a rule", allocs)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	held := func() bool {
		interned.mu.Lock()
		defer interned.mu.Unlock()
		for key := range interned.of {
			if strings.Contains(key, t.Name()) {
				return true
			}
		}
		return false
	}
	if !held() {
		t.Fatal("held under no key")
	}
	for range 1000 {
		if runtime.GC(); !held() {
			return
		}
		runtime.Gosched()
	}
	t.Error("rules that nobody has are kept")
}

func TestVerbsHaveNames(t *testing.T) {
	for v := range verbs {
		if got, ok := ParseVerb(v.String()); !ok || got != v {
			t.Errorf("%v is %v", v, got)
		}
	}
	if _, ok := ParseVerb("read"); ok || verbs.String() != "verb 4" {
		t.Error("an unknown verb has a name")
	}
}

// What a loop pays for a request of a user with as many rules as there may be.
func BenchmarkAllows(b *testing.B) {
	var one, most, wild []string
	one = []string{"subscribe:room/+/chat"}
	for i := range MaxRules {
		most = append(most, fmt.Sprintf("subscribe:room/+/chat/%d/#", i))
		wild = append(wild, fmt.Sprintf("subscribe:%s%d", strings.Repeat("+/", 100), i))
	}
	for name, c := range map[string]struct {
		rules  []string
		filter string
		want   bool
	}{
		"one":           {one, "room/1/chat", true},
		"last of most":  {most, "room/1/chat/63/x", true},
		"none of most":  {most, "room/1/chat/64/x", false},
		"none, deepest": {wild, strings.Repeat("+/", 100) + "+", false},
		"user":          {most, "user/ann/inbox", true},
	} {
		b.Run(name, func(b *testing.B) {
			r := Rights{User: "ann", Grants: grants(b, c.rules...)}
			for b.Loop() {
				if _, got := r.Allows(Subscribe, c.filter); got != c.want {
					b.Fatal(got)
				}
			}
		})
	}
}
