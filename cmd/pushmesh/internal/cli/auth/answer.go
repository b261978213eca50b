package auth

import (
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/topic"
)

// answer is what there is to say, as JSON has it.
type answer struct {
	Allowed bool     `json:"allowed"` // all that was asked for
	Refusal *refusal `json:"refusal,omitempty"`

	User      string             `json:"user,omitempty"`
	Issuer    string             `json:"issuer,omitempty"`
	KeyID     string             `json:"key_id,omitempty"`
	Keys      *keys              `json:"keys,omitempty"`
	TokenID   string             `json:"token_id,omitempty"`
	NotBefore string             `json:"not_before,omitempty"`
	Expires   string             `json:"expires,omitempty"`
	Clients   []string           `json:"clients,omitempty"` // patterns of client ids; none: any
	Client    *client            `json:"client,omitempty"`
	Checks    []check            `json:"checks,omitempty"`
	Rules     []rule             `json:"rules,omitempty"` // all, where nothing was asked for
	Profile   map[string]float64 `json:"profile,omitempty"`
	Note      string             `json:"note,omitempty"`

	proven  bool
	expires time.Time
}

// refusal is why a token is not good.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// client is whether a client id may be used.
type client struct {
	ID      string `json:"id"`
	Allowed bool   `json:"allowed"`
}

// check is one verb and filter.
type check struct {
	Verb    string `json:"verb"`
	Filter  string `json:"filter"` // of group: GROUP/FILTER
	Allowed bool   `json:"allowed"`
	// By is the rules that allow it: several where only together they do.
	By []rule `json:"by,omitempty"`
	// Rules are those of the verb, where none allows it, and Nearest is one of them that allows a
	// part of it; nil: none does.
	Rules   []rule `json:"rules,omitempty"`
	Nearest *rule  `json:"nearest,omitempty"`
}

// rule is a rule, with the name of the user filled in and as it was written.
type rule struct {
	Verb   string `json:"verb"`
	Filter string `json:"filter"`
	Rule   string `json:"rule"`
	Source string `json:"source"`
}

const note = "the policy of a namespace, and limits, may refuse all the same"

// explain answers for a principal; a nil one is not let in because of why.
func (c *Explain) explain(who *identity.Principal, why *code.Error) *answer {
	if who == nil {
		return &answer{Refusal: &refusal{Code: code.Name(why.Code), Message: why.Message}}
	}
	a := &answer{
		Allowed: true, User: who.User, Issuer: who.Proof.Issuer, KeyID: who.Proof.KeyID, TokenID: who.Proof.TokenID,
		NotBefore: showTime(who.NotBefore), Expires: showTime(who.Expires), Clients: who.Clients,
		proven: c.TokenFile != "", expires: who.Expires, Note: note,
	}
	if c.ClientID != "" {
		a.Client = &client{c.ClientID, who.AllowsClient(c.ClientID)}
		a.Allowed = a.Client.Allowed
	}
	if c.Verb == "" {
		for _, verb := range identity.Verbs() {
			a.Rules = append(a.Rules, rules(who, who.Rules(verb))...)
		}
		a.Profile = who.Profile
		return a
	}
	verb, _ := identity.ParseVerb(c.Verb) // the grammar has no others
	if verb == identity.Group {
		by, allowed := who.AllowsGroup(c.Group, c.Topic)
		a.add(newCheck(who, verb, c.Group+"/"+c.Topic, by, allowed))
		verb = identity.Subscribe
	}
	by, allowed := who.Allows(verb, c.Topic)
	a.add(newCheck(who, verb, c.Topic, by, allowed))
	return a
}

func (a *answer) add(c check) {
	a.Checks = append(a.Checks, c)
	a.Allowed = a.Allowed && c.Allowed
}

func newCheck(who *identity.Principal, verb identity.Verb, filter string, by []identity.Rule, allowed bool) check {
	c := check{Verb: verb.String(), Filter: filter, Allowed: allowed, By: rules(who, by)}
	if !allowed {
		c.Rules = rules(who, who.Rules(verb))
		c.Nearest = nearest(c.Rules, filter)
	}
	return c
}

func rules(who *identity.Principal, all []identity.Rule) (out []rule) {
	for _, r := range all {
		out = append(out, rule{Verb: r.Verb.String(), Filter: identity.Fill(r.Filter, who.User), Rule: r.Filter, Source: r.Source})
	}
	return out
}

// nearest is the rule that shares topics with a filter, and of several that which begins like it
// for the most levels.
func nearest(all []rule, filter string) (best *rule) {
	most := -1
	for i := range all {
		if n := alike(all[i].Filter, filter); n > most && topic.Meet(all[i].Filter, filter) {
			best, most = &all[i], n
		}
	}
	return best
}

// alike is how many levels two filters have in common before the first that differs.
func alike(a, b string) (n int) {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for n < min(len(as), len(bs)) && as[n] == bs[n] {
		n++
	}
	return n
}

func showTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
