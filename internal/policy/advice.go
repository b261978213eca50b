package policy

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

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

// HidesMembers is why clients may not see who is in a topic; nil: they may.
func (t *Table) HidesMembers(name string) *code.Error { return t.For(name).HidesMembers() }

// HidesMembers is why clients may not see who is in a topic with this policy; nil: they may.
func (p *Policy) HidesMembers() *code.Error {
	switch {
	case p.ClientPresence != pushmeshv1.ClientPresence_CLIENT_PRESENCE_OFF_UNSPECIFIED:
		return nil
	case p.Prefix == Default:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "no namespace covers the topic, and clients do not see who is in it: make one (pushmesh namespace set PREFIX --client-presence members)")
	}
	return code.New(wirev1.Code_CODE_FORBIDDEN, "clients do not see who is in topics here (rule namespace:"+p.Prefix+", client_presence off): see pushmesh namespace set --client-presence")
}
