package identity

import "slices"

// Verbs returns every verb.
func Verbs() []Verb { return []Verb{Subscribe, Publish, Claim, Group} }

// Rules returns what a principal is allowed of a verb: the rules of its grants in their order,
// those of its teams, then those that every user has. Names of users are not filled in.
func (p *Principal) Rules(verb Verb) (all []Rule) {
	if p.User == "" || verb >= verbs {
		return nil
	}
	if p.Grants != nil {
		all = slices.Clone(p.Grants.rules[verb])
		for _, t := range p.Grants.teams {
			all = append(all, t.rules[verb]...)
		}
	}
	if verb == own.Verb {
		all = append(all, own)
	}
	return all
}

// Sources names what is granted beside the principal's own rules, in the order in which that is
// asked: the source of the first rule of each team.
func (r Rights) Sources() (all []string) {
	if r.Grants == nil {
		return nil
	}
	for _, t := range r.Grants.teams {
		for _, rules := range t.rules {
			if len(rules) > 0 {
				all = append(all, rules[0].Source)
				break
			}
		}
	}
	return all
}
