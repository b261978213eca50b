// Package events defines the kinds of events that the mesh publishes, their topics, and which kinds
// match a filter.
package events

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// Root is the first level of every event's topic.
const Root = "$events"

// Kind of an event. Tiers exchange the numbers, as bits of a Mask.
type Kind uint8

// Kinds. An event that reports lost events is published as the kind that was lost, one that reports
// a dead edge as Disconnect.
const (
	Connect Kind = 1 + iota
	Disconnect
	Subscribe
	Unsubscribe
	Delivered
	SessionExpired
	DeadLetter
	SlowConsumer
)

// Kinds is one more than the greatest Kind.
const Kinds = int(SlowConsumer) + 1

var names = [Kinds]string{
	Connect: "connect", Disconnect: "disconnect", Subscribe: "subscribe", Unsubscribe: "unsubscribe", Delivered: "delivered",
	SessionExpired: "session_expired", DeadLetter: "dead_letter",
	SlowConsumer: "slow_consumer",
}

// String is the level of a topic that names the kind.
func (k Kind) String() string {
	if int(k) >= Kinds || k == 0 {
		return "unknown"
	}
	return names[k]
}

// All kinds, in order.
func All() []Kind {
	return []Kind{Connect, Disconnect, Subscribe, Unsubscribe, Delivered, SessionExpired, DeadLetter, SlowConsumer}
}

// Topic of a kind; those about topics are followed by a namespace.
func (k Kind) Topic() string { return Root + "/" + k.String() }

// In is the topic of a kind in a namespace, whose last levels are left out where the topic would be
// too long.
func (k Kind) In(namespace string) string {
	t := k.Topic()
	for len(t)+1+len(namespace) > topic.MaxLen {
		end := strings.LastIndexByte(namespace, '/')
		if end < 0 {
			return t
		}
		namespace = namespace[:end]
	}
	return t + "/" + namespace
}

// IsEvent reports whether a topic or filter is below Root.
func IsEvent(filter string) bool { return topic.Under(Root, filter) }

// Mask is a set of kinds.
type Mask uint32

// MaskSet is a bit of masks between tiers that distinguishes an empty mask from none. It stands for
// no kind.
const MaskSet Mask = 1

// Of is the mask of kinds.
func Of(kinds ...Kind) (m Mask) {
	for _, k := range kinds {
		m |= 1 << k
	}
	return m
}

// Has reports whether k is in the set.
func (m Mask) Has(k Kind) bool { return m&(1<<k) != 0 }

// KindsOf returns the kinds that a valid filter matches.
func KindsOf(filter string) Mask {
	first, rest, _ := strings.Cut(filter, "/")
	switch {
	case first != Root:
		return 0
	case rest == "":
		return 0 // nothing is published there
	}
	level, _, _ := strings.Cut(rest, "/")
	if level == "#" || level == "+" {
		return Of(All()...)
	}
	for _, k := range All() {
		if names[k] == level {
			return Of(k)
		}
	}
	return 0
}
