// Package identity knows who somebody is, once that was proven, and what they may do.
package identity

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// Principal is who came through a door. It is made once, away from the event loops, and is not
// changed afterwards. The zero Principal is nobody, and is allowed nothing.
type Principal struct {
	Tenant  string // empty until there are tenants
	User    string // as CheckUser wants it
	Clients []string
	Roles   []string // empty for users
	Grants  *Grants  // nil: none
	// NotBefore and Expires are when it may be used, from and until; zero times are no bound.
	NotBefore, Expires time.Time
	// Issued is when the proof was made, by the issuer's clock; zero: it does not say.
	Issued  time.Time
	Proof   Proof
	Profile map[string]float64 // what messages are ranked by
}

// Proof is how a Principal was proven.
type Proof struct {
	Issuer  string // the name that the issuer has in the mesh
	KeyID   string // of the key that signed; empty where keys have no ids
	TokenID string // empty where the token has none
}

// MaxUser is the most bytes of a user's name: "user/NAME/#" must be a filter, and NAME/CLIENT, with
// a client id, the name of who claims a resource.
const MaxUser = 190

// placeholder stands for the user's name in filters and in patterns of client ids.
const placeholder = "{user}"

// CheckUser finds what is wrong with the name of a user. As it is put into filters it must be one
// level of a topic, and must not change what a filter means. The replacement character is refused
// because decoders put it for whatever they can't read, so that two users would have one name.
func CheckUser(name string) error {
	switch {
	case name == "":
		return errors.New("the user's name is empty")
	case len(name) > MaxUser:
		return fmt.Errorf("the user's name is %d bytes long, %d at most", len(name), MaxUser)
	case !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError):
		return errors.New("the user's name is not UTF-8")
	case strings.ContainsAny(name, "/+#"):
		return errors.New("the user's name must not contain /, + or #")
	case name[0] == '$':
		return errors.New("the user's name must not begin with $")
	case strings.HasPrefix(name, "client:") || strings.HasPrefix(name, "backend:"):
		return errors.New("the user's name must not begin with client: or backend:, which are for those who have proven nothing")
	}
	for _, r := range name {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return errors.New("the user's name must not contain control characters")
		}
	}
	return nil
}

// Fill puts the name of a user into a filter of a Rule.
func Fill(filter, user string) string { return strings.ReplaceAll(filter, placeholder, user) }

// Check finds what is wrong with a principal that has a user: its name, and filters that are longer
// than filters may be once the name is filled in.
func (p *Principal) Check() error {
	if err := CheckUser(p.User); err != nil {
		return err
	}
	for _, pattern := range p.Clients {
		if err := checkClient(pattern); err != nil {
			return err
		}
	}
	if p.Grants == nil {
		return nil
	}
	for _, rules := range p.Grants.rules {
		for _, r := range rules {
			if err := topic.CheckFilter(Fill(r.Filter, p.User)); err != nil {
				return fmt.Errorf("%s with the user's name filled in: %w", r.Source, err)
			}
		}
	}
	return nil
}

// MaxClientID is the most bytes of a client id, and of a pattern of client ids.
const MaxClientID = 64

func checkClient(pattern string) error {
	switch {
	case pattern == "" || len(pattern) > MaxClientID:
		return fmt.Errorf("a pattern of client ids is %d bytes long, it must be 1 to %d", len(pattern), MaxClientID)
	case strings.Contains(strings.TrimSuffix(pattern, "*"), "*"):
		return errors.New("a pattern of client ids may have a * at its end only")
	case strings.ContainsAny(strings.ReplaceAll(pattern, placeholder, ""), "{}"):
		return errors.New("a pattern of client ids may have {user} in braces, and nothing else")
	}
	return nil
}

// AllowsClient reports whether the principal may have a client id: one that a pattern says, or any
// where there is no pattern. A client id proves nothing, and is the user's own.
func (p *Principal) AllowsClient(id string) bool {
	if p.User == "" {
		return false
	}
	for _, pattern := range p.Clients {
		// a * in the user's name is no wildcard
		begin, open := strings.CutSuffix(pattern, "*")
		begin = Fill(begin, p.User)
		if id == begin || open && strings.HasPrefix(id, begin) {
			return true
		}
	}
	return len(p.Clients) == 0
}

// Rights are what one user may do with topics. The zero Rights are nobody's, and allow nothing.
type Rights struct {
	User   string
	Grants *Grants // nil: none
}

// Rights of a principal.
func (p *Principal) Rights() Rights { return Rights{User: p.User, Grants: p.Grants} }

// own is what every user is allowed without a grant.
var own = Rule{Verb: Subscribe, Filter: "user/" + placeholder + "/#", Source: "built-in"}

// Allows is that of the principal's Rights. That now is within NotBefore and Expires is for the
// caller to see to.
func (p *Principal) Allows(verb Verb, filter string) (by []Rule, allowed bool) {
	return p.Rights().Allows(verb, filter)
}

// AllowsGroup is that of the principal's Rights.
func (p *Principal) AllowsGroup(name, filter string) (by []Rule, allowed bool) {
	return p.Rights().AllowsGroup(name, filter)
}

// Allows reports whether every topic that filter matches may be used so, and the rules that say it:
// one mostly, several where only together they contain the filter. Everything that no rule allows
// is refused. Its cost grows with Weight. A filter that is not valid is refused.
func (r Rights) Allows(verb Verb, filter string) (by []Rule, allowed bool) {
	if topic.CheckFilter(filter) != nil {
		return nil, false
	}
	return r.AllowsValid(verb, filter)
}

// AllowsValid is Allows for a filter that was found valid (topic.CheckFilter), which takes about as
// long again.
func (r Rights) AllowsValid(verb Verb, filter string) (by []Rule, allowed bool) {
	if r.User == "" || verb >= verbs {
		return nil, false
	}
	if verb == Subscribe && r.isOwn(filter) {
		return []Rule{own}, true
	}
	if r.Grants == nil {
		return nil, false
	}
	if by = r.single(r.Grants, verb, filter); by != nil {
		return by, true
	}
	for _, t := range r.Grants.teams {
		if by = r.single(t, verb, filter); by != nil {
			return by, true
		}
	}
	if filter[len(filter)-1] != '#' {
		return nil, false // of several filters together none contains it (topic.Cover)
	}
	cover := topic.NewCover(filter)
	if verb == Subscribe && cover.Add(Fill(own.Filter, r.User)) {
		by = append(by, own)
	}
	if by = r.together(&cover, by, r.Grants, verb); cover.Whole() {
		return by, true
	}
	for _, t := range r.Grants.teams {
		if by = r.together(&cover, by, t, verb); cover.Whole() {
			return by, true
		}
	}
	return nil, false
}

// single is the rule that contains a filter by itself; nil: none does.
func (r Rights) single(g *Grants, verb Verb, filter string) []Rule {
	rules, forms := g.rules[verb], g.forms[verb]
	for i := range forms {
		if forms[i].mayContain(filter) && topic.Contains(r.fill(&forms[i], rules[i].Filter), filter) {
			return rules[i : i+1 : i+1]
		}
	}
	return nil
}

// together adds rules to a cover until that is whole, and to by those that take part.
func (r Rights) together(cover *topic.Cover, by []Rule, g *Grants, verb Verb) []Rule {
	rules, forms := g.rules[verb], g.forms[verb]
	for i := range forms {
		if cover.Add(r.fill(&forms[i], rules[i].Filter)) {
			by = append(by, rules[i])
		}
		if cover.Whole() {
			break
		}
	}
	return by
}

// isOwn reports whether the user's own filter contains one.
func (r Rights) isOwn(filter string) bool {
	rest, under := strings.CutPrefix(filter, "user/")
	return under && topic.Under(r.User, rest)
}

func (r Rights) fill(f *form, filter string) string {
	if f.fills {
		return Fill(filter, r.User)
	}
	return filter
}

// Weight is about how many levels are compared at most to find what one verb allows.
func (r Rights) Weight() int {
	if r.Grants == nil {
		return 1
	}
	return r.Grants.weight
}

// AllowsGroup reports whether the user may be a member of the group of this name for filter. It
// needs the right to subscribe to the filter, too, which is not looked at here.
func (r Rights) AllowsGroup(name, filter string) (by []Rule, allowed bool) {
	if name == "" || strings.Contains(name, "/") {
		return nil, false
	}
	return r.Allows(Group, name+"/"+filter)
}
