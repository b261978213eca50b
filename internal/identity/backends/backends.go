// Package backends knows who may call a router, and what each of them may do: the backends file,
// keys, certificates' names and tokens' subjects that prove who somebody is, and roles.
package backends

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Kind of a role; kinds are bits, so that a set of them is a Kind too.
type Kind uint8

// Kinds of roles. Those before Auditor have a filter.
const (
	Publisher Kind = 1 << iota // may publish to topics that the filter matches
	// may subscribe to what the filter contains, and read its history and presence
	Consumer
	Claimant // may claim resources that the filter matches, for any owner
	Auditor  // may read everything, and change nothing
	Operator // may do everything
)

// kinds and what they are called.
var kinds = []struct {
	kind Kind
	name string
	does string
}{
	{Publisher, "publisher", "publish to"},
	{Consumer, "consumer", "consume"},
	{Claimant, "claimant", "claim"},
	{Auditor, "auditor", "read"},
	{Operator, "operator", "change"},
}

// String implements fmt.Stringer: "publisher or operator", say.
func (k Kind) String() string {
	var names []string
	for _, one := range kinds {
		if k&one.kind != 0 {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, " or ")
}

// Role is what an identity may do.
type Role struct {
	Kind   Kind
	Filter string // of Publisher, Consumer and Claimant
}

// ParseRole reads a role as the file has it: "publisher:orders/#", "consumer:FILTER",
// "claimant:FILTER", "auditor" or "operator".
func ParseRole(text string) (Role, error) {
	name, filter, has := strings.Cut(text, ":")
	for _, one := range kinds {
		switch {
		case one.name != name:
			continue
		case one.kind >= Auditor && has:
			return Role{}, fmt.Errorf("role %q: %s has no filter", text, name)
		case one.kind >= Auditor:
			return Role{Kind: one.kind}, nil
		case !has:
			return Role{}, fmt.Errorf("role %q needs a filter: %s:orders/# for what is below orders, or %s:# for everything", text, name, name)
		}
		if err := topic.CheckFilter(filter); err != nil {
			return Role{}, fmt.Errorf("role %q: %w", text, err)
		}
		return Role{Kind: one.kind, Filter: filter}, nil
	}
	return Role{}, fmt.Errorf("role %q is not known: it must be publisher:FILTER, consumer:FILTER, claimant:FILTER, auditor or operator", text)
}

// String is what ParseRole reads.
func (r Role) String() string {
	if r.Kind < Auditor {
		return r.Kind.String() + ":" + r.Filter
	}
	return r.Kind.String()
}

// Limits of an identity in the whole mesh; 0: those of every producer.
type Limits struct {
	Rate     int `yaml:"rate,omitempty"`      // messages a second
	InFlight int `yaml:"in_flight,omitempty"` // messages unanswered
}

// Identity is somebody who calls routers. It must not be changed.
type Identity struct {
	Name   string
	Roles  []Role
	Limits Limits
	has    Kind
	caller string // see Producer
}

// producers is what the names of backends begin with among those of producers.
const producers = "backend:"

// Producer is what the identity is called where producers are held to limits.
func (i *Identity) Producer() string { return i.caller }

// Session is what a session of the identity is called, and no other identity's: there is no space
// in names.
func (i *Identity) Session(name string) string { return i.Name + " " + name }

// Has reports whether it has a role of one of these kinds; an operator has all.
func (i *Identity) Has(any Kind) bool { return i.has&(any|Operator) != 0 }

// May reports whether it has a role of the kind for all that a filter, or a topic, matches; filter
// must be valid.
func (i *Identity) May(kind Kind, filter string) bool {
	if i.has&Operator != 0 {
		return true
	}
	if i.has&kind == 0 {
		return false
	}
	for n := range i.Roles {
		if r := &i.Roles[n]; r.Kind == kind && topic.Contains(r.Filter, filter) {
			return true
		}
	}
	if !strings.HasSuffix(filter, "#") {
		return false // of several filters together none contains it (topic.Cover)
	}
	cover := topic.NewCover(filter)
	for n := range i.Roles {
		if r := &i.Roles[n]; r.Kind == kind {
			cover.Add(r.Filter)
		}
	}
	return cover.Whole()
}

// Filters are those of its roles of a kind; all: it has everything, as an operator.
func (i *Identity) Filters(kind Kind) (filters []string, all bool) {
	if i.has&Operator != 0 {
		return nil, true
	}
	for n := range i.Roles {
		if r := &i.Roles[n]; r.Kind == kind {
			filters = append(filters, r.Filter)
		}
	}
	return filters, false
}

// By names the roles by which it has one of the kinds any, or the kind part for all filters; it
// must have that.
func (i *Identity) By(any, part Kind, filters []string) string {
	var several []string
	for n := range i.Roles {
		r := &i.Roles[n]
		switch {
		case r.Kind&(any|Operator) != 0:
			return r.String()
		case r.Kind != part || len(several) > mostRoles:
		case len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool { return topic.Contains(r.Filter, f) || topic.Contains(f, r.Filter) }):
			several = append(several, r.String())
		}
	}
	return strings.Join(several, ", ")
}

// keeps reports whether it may do all that another may by the letter of its roles.
func (i *Identity) keeps(other *Identity) bool {
	have := map[Role]bool{}
	for _, r := range i.Roles {
		have[r] = true
	}
	for _, r := range other.Roles {
		if !have[r] && i.has&Operator == 0 {
			return false
		}
	}
	return true
}

// Lacks is the error (FORBIDDEN) of an identity that has none of these roles.
func (i *Identity) Lacks(any Kind, what string) error {
	return code.New(wirev1.Code_CODE_FORBIDDEN, fmt.Sprintf("backend %s may not call %s: it needs the role %v; its roles are %s (rule default-deny)",
		i.Name, what, any|Operator, i.roles()))
}

// Refuse is the error (FORBIDDEN) of an identity that no role of the kind lets have a filter.
func (i *Identity) Refuse(kind Kind, filter string) error {
	does := "use"
	for _, one := range kinds {
		if one.kind == kind {
			does = one.does
		}
	}
	return code.New(wirev1.Code_CODE_FORBIDDEN, fmt.Sprintf("backend %s may not %s %.100q: its roles are %s, and none is %v for all of that (rule default-deny)",
		i.Name, does, filter, i.roles(), kind))
}

// mostRoles are told in an error, and no more after so many bytes of them.
const (
	mostRoles     = 8
	mostRolesText = 256
)

func (i *Identity) roles() string {
	var all []string
	size := 0
	for n, r := range i.Roles {
		if n == mostRoles || size > mostRolesText {
			all = append(all, "…")
			break
		}
		all = append(all, r.String())
		size += len(all[n])
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// Proof is how somebody has proven who it is; one of its fields is set. It holds no secret.
type Proof struct {
	KeyID       string
	hash        [hashSize]byte // of the key's secret
	Certificate []string       // names in a certificate that was verified
	Token       Subject
	Expires     time.Time // of the token; zero: never
}

// Subject is whose token it is.
type Subject struct {
	Issuer string // by its name in the issuers file
	Sub    string
}

// Kind of the proof, for logs: key, certificate or token.
func (p *Proof) Kind() string {
	switch {
	case p.KeyID != "":
		return "key"
	case p.Token.Issuer != "":
		return "token"
	}
	return "certificate"
}
