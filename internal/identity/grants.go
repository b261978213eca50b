package identity

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// Verb is what a rule allows to do with topics.
type Verb uint8

// The verbs. Filters of Claim are of resources, those of Group are GROUP/FILTER.
const (
	Subscribe Verb = iota
	Publish
	Claim
	Group
	verbs
)

var verbNames = [verbs]string{"subscribe", "publish", "claim", "group"}

func (v Verb) String() string {
	if v >= verbs {
		return "verb " + strconv.Itoa(int(v))
	}
	return verbNames[v]
}

// ParseVerb is the inverse of String; false where there is no such verb.
func ParseVerb(name string) (Verb, bool) {
	for v, is := range verbNames {
		if is == name {
			return Verb(v), true
		}
	}
	return 0, false
}

// Rule allows the topics that a filter matches. A level of the filter may be {user}, which stands
// for the name of the user who asks.
type Rule struct {
	Verb   Verb
	Filter string
	// Source is where it comes from, and its id among the rules of a principal: "pm_sub[0]", which
	// is the first filter of that claim of a token, or "built-in".
	Source string
}

// MaxRules is the most rules of a verb.
const MaxRules = 64

// Grants are rules. Those that are alike are one in the whole process, whoever has them, as the
// user's name is filled in when they are asked: so a connection has a pointer, and users with the
// same rights share what it points to. They do not change.
type Grants struct {
	rules  [verbs][]Rule
	forms  [verbs][]form // of the rules
	weight int           // see Rights.Weight
	teams  []*Grants     // what is granted beside, see With
}

// form is what is known of a rule's filter before it is compared.
type form struct {
	begin string // what the filters begin with that it contains
	fills bool   // it has the user's name in it
}

// formOf a filter; levels that stand for others end its begin, with the slash before them.
func formOf(filter string) form {
	f := form{begin: filter, fills: strings.Contains(filter, placeholder)}
	if i := strings.IndexAny(filter, "+#{"); i >= 0 {
		f.begin = strings.TrimSuffix(filter[:i], "/")
	}
	return f
}

// mayContain reports whether a filter is worth the comparison.
func (f *form) mayContain(filter string) bool { return strings.HasPrefix(filter, f.begin) }

// NewGrants checks rules and returns the Grants that have them, in their order; nil for none.
func NewGrants(rules []Rule) (*Grants, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	g := &Grants{}
	var key strings.Builder
	for _, r := range rules {
		if r.Verb >= verbs {
			return nil, fmt.Errorf("%s: %v is not known", r.Source, r.Verb)
		}
		if len(g.rules[r.Verb]) == MaxRules {
			return nil, fmt.Errorf("there are more than %d filters to %v", MaxRules, r.Verb)
		}
		if err := checkRule(r.Filter); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Source, err)
		}
		g.rules[r.Verb] = append(g.rules[r.Verb], r)
		g.forms[r.Verb] = append(g.forms[r.Verb], formOf(r.Filter))
	}
	for _, rules := range g.rules {
		weight := 1
		for _, r := range rules {
			weight += 1 + strings.Count(r.Filter, "/")
		}
		g.weight = max(g.weight, weight)
	}
	for _, rules := range g.rules {
		for _, r := range rules {
			// lengths, so that no text of one part is read as the next
			fmt.Fprintf(&key, "%d %d %d %s%s", r.Verb, len(r.Filter), len(r.Source), r.Filter, r.Source)
		}
	}
	return interned.share(key.String(), g), nil
}

// With is what g (nil: nothing) and teams grant together. It is made anew with each call, and
// shares the rules.
func (g *Grants) With(teams ...*Grants) *Grants {
	all := &Grants{weight: 1, teams: teams}
	if g != nil {
		all.rules, all.forms, all.weight = g.rules, g.forms, g.weight
	}
	for _, t := range teams {
		all.weight += t.weight
	}
	return all
}

// Len is the number of rules.
func (g *Grants) Len() (n int) {
	if g == nil {
		return 0
	}
	for _, t := range g.teams {
		n += t.Len()
	}
	for _, rules := range g.rules {
		n += len(rules)
	}
	return n
}

func checkRule(filter string) error {
	for level := range strings.SplitSeq(filter, "/") {
		if level != placeholder && strings.ContainsAny(level, "{}") {
			return fmt.Errorf("%w: braces are for a level that is {user} as a whole", topic.ErrBad)
		}
	}
	return topic.CheckFilter(filter)
}

// interned are the Grants that somebody holds, by what is in them. What nobody holds any more the
// garbage collector takes, and its key with it.
var interned = shared{of: map[string]weak.Pointer[Grants]{}}

type shared struct {
	mu sync.Mutex
	of map[string]weak.Pointer[Grants]
}

func (s *shared) share(key string, g *Grants) *Grants {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[key].Value(); have != nil {
		return have
	}
	s.of[key] = weak.Make(g)
	runtime.AddCleanup(g, s.forget, key)
	return g
}

// forget takes out a key whose Grants are gone; others may have come under it.
func (s *shared) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[key].Value() == nil {
		delete(s.of, key)
	}
}
