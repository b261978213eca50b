package request

import (
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// MaxState is the most bytes of what a client says of itself in a topic.
const MaxState = 1 << 10

// Watch checks a Watch: whoever may subscribe to a topic may see who is in it, where the namespace
// shows that.
func (r *Rules) Watch(c Client, m *wirev1.Watch) *code.Error {
	switch {
	case c.IDInUse:
		return idInUse
	case c.Subscriptions >= r.Subscriptions:
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "the connection is at its limit of subscriptions")
	case c.Draining:
		return stopping
	}
	if why := r.inTopic(&c, m.GetTopic(), false); why != nil {
		return why
	}
	if why := r.overloaded(); why != nil {
		return why
	}
	return c.permitted(m.GetTopic(), "")
}

// State checks a State of a client that subscribes to the topic, or watches it, where inside.
func (r *Rules) State(c Client, m *wirev1.State, inside bool) *code.Error {
	switch {
	case c.IDInUse:
		return idInUse
	case len(m.GetState()) > MaxState:
		return invalid(fmt.Sprintf("the state is %d bytes long, %d at most", len(m.GetState()), MaxState))
	}
	if why := r.inTopic(&c, m.GetTopic(), inside); why != nil {
		return why
	}
	if r.PolicyFor(m.GetTopic()).ClientPresence != pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS {
		return code.New(wirev1.Code_CODE_FORBIDDEN, "clients see counts alone in topics of this namespace, and no states")
	}
	return c.permitted(m.GetTopic(), "")
}

// inTopic refuses topics in which the client may see nobody. isGranted: it was found to be granted
// before.
func (r *Rules) inTopic(c *Client, name string, isGranted bool) *code.Error {
	if topic.CheckFilter(name) == nil && topic.IsFilter(name) {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, "presence is of one topic: wildcards are not supported")
	}
	if why := Topic(name); why != nil {
		return why
	}
	if why := r.Refuses(name); why != nil {
		return why
	}
	if !isGranted {
		if why := c.ungranted(identity.Subscribe, "", name); why != nil {
			return why
		}
	}
	if !c.Backend && r.Namespaces != nil {
		if why := r.Namespaces().Bars(name); why != nil {
			return why
		}
	}
	switch {
	case c.Backend:
		return unsupported("backends ask PresenceService who is in a topic, and are in none themselves")
	case c.backendsOnly(name):
		return code.New(wirev1.Code_CODE_FORBIDDEN, "topics that begin with $ are for backends")
	}
	return r.PolicyFor(name).HidesMembers()
}
