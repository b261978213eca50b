// Package request checks what clients ask, as pure functions of the request, of what the edge
// allows and of what the connection has: nil, or the Error that answers it.
package request

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Rules are what the edge allows.
type Rules struct {
	PolicyFor func(topic string) *policy.Policy
	// Refuses is the refusal of a topic, or of a filter that may match one, whose namespace the
	// edge does not understand; nil: it understands it.
	Refuses func(filter string) *code.Error
	// Namespaces say what clients may not do, whatever they are granted; nil: nothing of that.
	Namespaces func() *policy.Table
	// Unknown is the refusal of every Hello while the edge does not know the namespaces; nil: it
	// knows them. Fits reports whether matches stay cheap with another filter among those of the
	// loop's subscriptions, or of its groups.
	Unknown func() *code.Error
	Fits    func(filter string, group bool) bool
	// Shedding: newcomers are refused.
	Shedding       bool
	Subscriptions  int // per connection
	WildcardTopics int // of a filter
	PublishWindow  int // per connection
}

// Client is the connection that asks, as far as checks go.
type Client struct {
	// Rights are asked where Known: the user has proven who it is.
	Rights identity.Rights
	Known  bool
	// Extra is asked for what rights do not allow; nil: nothing is.
	Extra Extra
	wants []identity.Verb // of Extra
	// IDInUse: the request's id stands for something that is not over.
	IDInUse       bool
	Backend       bool // it is a router's, for a backend
	Draining      bool // it was asked to go
	HasSession    bool
	Subscriptions int // that it has
	Publishes     int // of its that are unanswered
}

// Extra says what the user may do beyond its rights.
type Extra interface {
	// Permit is nil where all of the verbs are allowed, and Parked where that is being found out.
	// The group is that of identity.Group.
	Permit(verbs []identity.Verb, filter, group string) *code.Error
}

// Parked is no answer: the same request is given again once there is one.
var Parked = code.New(wirev1.Code_CODE_UNAVAILABLE, "the permission is being asked for")

func invalid(text string) *code.Error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, text) }

func unsupported(text string) *code.Error { return code.New(wirev1.Code_CODE_UNSUPPORTED, text) }

var (
	idInUse = invalid("the id is in use")
	// stopping answers what a connection that was asked to go may not begin.
	stopping = code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")
)

// ungranted refuses what the user's rights do not contain, whatever the edge would allow others,
// unless permitted is to find out. Topics of the mesh's own are for rights alone.
// prefix is what stands before a filter in what is granted.
func (c *Client) ungranted(verb identity.Verb, prefix, filter string) *code.Error {
	if !c.Known {
		return nil
	}
	if _, allowed := c.Rights.AllowsValid(verb, prefix+filter); allowed {
		return nil
	}
	if c.Extra != nil && filter[0] != '$' {
		c.wants = append(c.wants, verb)
		return nil
	}
	where := "no filter of the token's " + claimOf[verb]
	if teams := c.Rights.Sources(); len(teams) > 0 {
		where += " or of " + strings.Join(teams, ", ")
	}
	return code.New(wirev1.Code_CODE_FORBIDDEN, where+" contains it (rule default-deny): see pushmesh auth explain --verb "+verb.String())
}

// permitted refuses what ungranted has left open. It comes behind all other checks, so that nobody
// is asked for nothing.
func (c *Client) permitted(filter, group string) *code.Error {
	if len(c.wants) == 0 {
		return nil
	}
	return c.Extra.Permit(c.wants, filter, group)
}

// claimOf a token, in which filters are granted.
var claimOf = map[identity.Verb]string{identity.Subscribe: "pm_sub", identity.Publish: "pm_pub", identity.Claim: "pm_claim", identity.Group: "pm_group"}

// Topic is a refusal for a bad topic.
func Topic(t string) *code.Error {
	if err := topic.Check(t); err != nil {
		return code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
	}
	return nil
}

// HasControl reports whether a name holds control characters.
func HasControl(s string) bool {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return true
		}
	}
	return false
}
