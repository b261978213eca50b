package namespaces

import (
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Namespace is a namespace as JSON prints it; what is left out has its default.
type Namespace struct {
	Prefix                string  `json:"prefix"`
	Version               uint64  `json:"version"`
	Builtin               bool    `json:"builtin,omitempty"`
	Durable               bool    `json:"durable"`
	Retention             string  `json:"retention,omitempty"`
	AckTimeout            string  `json:"ack_timeout,omitempty"`
	MaxRedeliveries       *uint32 `json:"max_redeliveries,omitempty"`
	MaxAttempts           uint32  `json:"max_attempts,omitempty"`
	DeadLetterTopic       string  `json:"dead_letter_topic,omitempty"`
	Overflow              string  `json:"overflow"`
	Presence              bool    `json:"presence,omitempty"`
	MaxPayload            uint32  `json:"max_payload,omitempty"`
	ProducerRate          uint32  `json:"producer_rate,omitempty"`
	ProducerInFlight      uint32  `json:"producer_in_flight,omitempty"`
	ClientPublish         bool    `json:"client_publish,omitempty"`
	ClientSubscribe       string  `json:"client_subscribe,omitempty"`
	ClientHistory         string  `json:"client_history,omitempty"`
	ClientPresence        string  `json:"client_presence,omitempty"`
	ClientPresenceMembers uint32  `json:"client_presence_members,omitempty"`
	Keep                  string  `json:"keep,omitempty"`
	MaxKept               uint32  `json:"max_kept,omitempty"`
	DedupeWindow          string  `json:"dedupe_window,omitempty"`
	DeliveredEvents       bool    `json:"delivered_events,omitempty"`
	// Rank is a RankPolicy.
	Rank json.RawMessage `json:"rank,omitempty"`
	// Claims is a ClaimPolicy.
	Claims json.RawMessage `json:"claims,omitempty"`
}

func shownPolicy(n *pushmeshv1.Namespace) Namespace {
	p := n.GetPolicy()
	s := Namespace{
		Prefix: n.GetPrefix(), Version: n.GetVersion(), Builtin: n.GetBuiltin(), Durable: p.GetDurable(),
		Retention: showDuration(p.GetRetention().AsDuration()), AckTimeout: showDuration(p.GetAckTimeout().AsDuration()),
		MaxAttempts: p.GetMaxAttempts(), DeadLetterTopic: p.GetDeadLetterTopic(), Presence: p.GetPresence(),
		MaxPayload: p.GetMaxPayload(), ProducerRate: p.GetProducerRate(), ProducerInFlight: p.GetProducerInFlight(),
		ClientPublish: p.GetClientPublish(), DedupeWindow: showDuration(p.GetDedupeWindow().AsDuration()),
		DeliveredEvents: p.GetDeliveredEvents(), MaxKept: p.GetMaxKept(), ClientPresenceMembers: p.GetClientPresenceMembers(),
		Overflow: overflowName(p.GetOverflow()),
	}
	if p != nil && p.MaxRedeliveries != nil {
		s.MaxRedeliveries = p.MaxRedeliveries
	}
	if p.GetClientSubscribe() == pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE {
		s.ClientSubscribe = none
	}
	if p.GetClientHistory() == pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE {
		s.ClientHistory = none
	}
	if c := p.GetClientPresence(); c != pushmeshv1.ClientPresence_CLIENT_PRESENCE_OFF_UNSPECIFIED {
		s.ClientPresence = presenceName(c)
	}
	if p.GetKeep() == pushmeshv1.Keep_KEEP_LAST {
		s.Keep = last
	}
	if p.GetRank() != nil {
		// What came over gRPC can be written as JSON, but for text that is not UTF-8, which gRPC
		// refuses.
		s.Rank, _ = protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.GetRank())
	}
	if p.GetClaims() != nil {
		s.Claims, _ = protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.GetClaims())
	}
	return s
}

// none is how flags and JSON name what no client may.
const none = "none"

// last is how they name that a topic keeps its last message.
const last = "last"

// clients is what clients may do, in the table.
func clients(p *pushmeshv1.Policy) string {
	switch {
	case p.GetClientSubscribe() == pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE:
		return none
	case p.GetClientHistory() == pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE:
		return "live"
	}
	return "granted"
}

// overflowName is how --overflow names it.
func overflowName(o wirev1.Overflow) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(o.String(), "OVERFLOW_")), "_", "-")
}

func showDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
