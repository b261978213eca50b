package identity

import "slices"

// Verbs returns every verb.
func Verbs() []Verb { return []Verb{Subscribe, Publish, Claim, Group} }

// Rules returns what a principal is allowed of a verb: the rules of its grants in their order, then
// those that every user has. Names of users are not filled in.
func (p *Principal) Rules(verb Verb) (all []Rule) {
	if p.User == "" || verb >= verbs {
		return nil
	}
	if p.Grants != nil {
		all = slices.Clone(p.Grants.rules[verb])
	}
	if verb == own.Verb {
		all = append(all, own)
	}
	return all
}
