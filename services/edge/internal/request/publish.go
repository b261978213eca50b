package request

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// publishRetry is when to try again what is beyond the publish window.
const publishRetry = 100 * time.Millisecond

// What a message takes on its way to a router beside its bytes, and each of its headers, in bytes.
const (
	publishBytes = 512
	headerBytes  = 128
)

// PublishBytes is about how much memory a Publish takes until it is answered. Memory comes in sizes
// that lie an eighth apart, so that a payload takes up to that much more.
func PublishBytes(m *wirev1.Publish) int {
	n := publishBytes + len(m.GetTopic()) + len(m.GetPayload())*9/8 + len(m.GetDedupeKey())
	for k, v := range m.GetHeaders() {
		n += headerBytes + len(k) + len(v)
	}
	return n
}

// Publish checks a Publish.
func (r *Rules) Publish(c Client, m *wirev1.Publish) *code.Error {
	switch {
	case m.GetId() != 0 && c.IDInUse:
		return idInUse
	case c.Publishes >= r.PublishWindow:
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, publishRetry, "more publishes are unanswered than publish_window allows")
	case c.Draining:
		return stopping
	}
	if why := Topic(m.GetTopic()); why != nil {
		return why
	}
	if why := c.ungranted(identity.Publish, "", m.GetTopic()); why != nil {
		return why
	}
	p := r.PolicyFor(m.GetTopic())
	switch {
	case p.Refusal != nil:
		return p.Refusal
	case !p.ClientPublish:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "namespace "+p.Prefix+" does not let clients publish: give it client_publish (pushmesh namespace set "+p.Prefix+" --client-publish)")
	case m.GetDedupeKey() != "" && !p.Durable:
		return unsupported("dedupe_key: the topic is ephemeral, and dedupe keys are kept for durable topics only: leave it out")
	case p.MaxPayload > 0 && len(m.GetPayload()) > p.MaxPayload:
		return code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE, "the payload is longer than the namespace allows")
	}
	return c.permitted(m.GetTopic(), "")
}
