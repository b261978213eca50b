package policy

import "github.com/pushmesh/pushmesh/internal/topic"

// NoPresence says that a topic or filter has no presence, as p, its policy, has none, and what to
// do.
func NoPresence(p *Policy, name string) string {
	switch {
	case topic.IsFilter(name):
		return "no namespace that " + name + " matches has presence: switch it on (pushmesh namespace set PREFIX --presence)"
	case p.Prefix == Default:
		return "no namespace covers " + name + ", so that it has no presence: make one (pushmesh namespace set PREFIX --presence)"
	}
	return "namespace " + p.Prefix + " of " + name + " has no presence: switch it on (pushmesh namespace set " + p.Prefix + " --presence)"
}
