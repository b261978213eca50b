package permission

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/topic"
)

// Bounds of an answer.
const (
	maxAnswer  = 8 << 10 // bytes
	maxMembers = 64      // of an object
	maxNesting = 8       // objects and arrays in each other
)

// For how long an answer is used again.
const (
	// DefaultYes is that of a yes which does not say.
	DefaultYes = time.Minute
	// MostNo is that of a no at most, so that who has just been granted something is not told no
	// for long.
	MostNo = 5 * time.Second
	// Least and Most bound what answers say.
	Least = time.Second
	Most  = time.Hour
)

// request is the body of a question. What is empty is left out.
type request struct {
	Subject  subject  `json:"subject"`
	Action   action   `json:"action"`
	Resource resource `json:"resource"`
	Context  where    `json:"context"`
}

type subject struct {
	Type       string  `json:"type"`
	ID         string  `json:"id"`
	Properties *client `json:"properties,omitempty"`
}

type client struct {
	ID     string `json:"client_id,omitempty"`
	Issuer string `json:"issuer,omitempty"`
}

type action struct {
	Name string `json:"name"`
}

type resource struct {
	Type       string `json:"type"`
	ID         string `json:"id"`
	Properties *group `json:"properties,omitempty"`
}

type group struct {
	Name string `json:"group"`
}

type where struct {
	Address string `json:"address,omitempty"`
	Edge    string `json:"edge,omitempty"`
}

// Types of resources. A filter with wildcards has a type of its own, so that rules for topics do
// not grant one because its name begins, or ends, as a topic's does.
const (
	typeTopic    = "topic"
	typeFilter   = "filter"
	typeResource = "resource"
)

func (h *Hook) request(q *identity.Question) *request {
	r := &request{
		Subject: subject{Type: "user", ID: q.User}, Action: action{Name: q.Verb.String()}, Resource: resource{Type: typeTopic, ID: q.Filter},
		Context: where{Address: q.Address, Edge: h.edge},
	}
	if q.Client != "" || q.Issuer != "" {
		r.Subject.Properties = &client{ID: q.Client, Issuer: q.Issuer}
	}
	switch {
	case q.Verb == identity.Claim:
		r.Resource.Type = typeResource
	case topic.IsFilter(q.Filter):
		r.Resource.Type = typeFilter
	}
	if q.Group != "" {
		r.Resource.Properties = &group{Name: q.Group}
	}
	return r
}

// says is what an answer says.
type says struct {
	allowed bool
	reason  string
	cache   time.Duration
}

func (s says) permission(left time.Duration) identity.Permission {
	return identity.Permission{Allowed: s.allowed, Reason: s.reason, Left: left}
}

// readAnswer reads {"decision": true|false, "context": {"cache_seconds": 60, "reason": "…"}}.
// Members of other names are passed over, and so is a reason that is no string: AuthZEN leaves the
// context to whoever answers.
func readAnswer(data []byte) (says, error) {
	if len(data) > maxAnswer {
		return says{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	all, err := token.Members(data, maxMembers, maxNesting)
	if err != nil {
		return says{}, fmt.Errorf("the answer: members %w", err)
	}
	s := says{cache: MostNo}
	switch string(all["decision"]) {
	case "true":
		s.allowed, s.cache = true, DefaultYes
	case "false":
	default:
		return says{}, errors.New("the answer: decision must be true or false")
	}
	more := all["context"]
	if len(more) == 0 || string(more) == "null" {
		return s, nil
	}
	var in map[string]json.RawMessage
	if more[0] != '{' || json.Unmarshal(more, &in) != nil {
		return says{}, errors.New("the answer: context must be an object")
	}
	if raw, there := in["cache_seconds"]; there {
		var n int64
		if c := raw[0]; c < '0' || c > '9' || json.Unmarshal(raw, &n) != nil || n > int64(Most/time.Second) {
			return says{}, fmt.Errorf("the answer: cache_seconds must be a whole number of seconds, 0 to %d", int64(Most/time.Second))
		}
		s.cache = max(time.Duration(n)*time.Second, Least)
	}
	if !s.allowed {
		s.cache = min(s.cache, MostNo)
		var reason string
		if json.Unmarshal(in["reason"], &reason) == nil {
			s.reason = caller.Reason(reason)
		}
	}
	return s, nil
}
