// Package policy says how the topics of each namespace behave, and follows changes of that.
package policy

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Default is the namespace that holds the policy of topics no prefix covers.
const Default = "default"

// Dead is the namespace of the topics that dead letters are copied to.
const Dead = "$dead"

// Events is the namespace of what happens in the mesh.
const Events = events.Root

// Audit is the namespace of what operators change.
const Audit = "$audit"

// Defaults of a policy's fields.
const (
	DefaultRetention       = 24 * time.Hour
	DefaultAckTimeout      = 2 * time.Second
	DefaultDedupeWindow    = 2 * time.Minute
	DefaultMaxRedeliveries = 2
	DefaultMaxAttempts     = 16
	DefaultMaxPayload      = 256 << 10
	DefaultMaxKept         = 1_000_000
	// DefaultClientPresenceMembers of a topic are shown by name, and at most
	// MaxClientPresenceMembers: all that is known of them has to fit one frame.
	DefaultClientPresenceMembers = 200
	MaxClientPresenceMembers     = 500
)

// Policy of one namespace with every default applied. It is never changed once made.
type Policy struct {
	// Prefix of the namespace; Default for topics that none covers.
	Prefix string
	// Refusal is why nothing new is taken in the namespace: this process does not know or not
	// understand its policy. nil: it does. With it, the other fields hold what loses nothing for
	// what is under way.
	Refusal         *code.Error
	Durable         bool
	Retention       time.Duration
	AckTimeout      time.Duration
	DedupeWindow    time.Duration
	MaxRedeliveries uint32
	MaxAttempts     uint32
	DeadLetterTopic string
	Overflow        wirev1.Overflow
	Presence        bool
	// MaxPayload in bytes.
	MaxPayload int
	// ProducerRate in messages a second and ProducerInFlight in messages; 0: the router's setting.
	ProducerRate     int
	ProducerInFlight int
	ClientPublish    bool
	// Barred is why no client may subscribe here, and HistoryBarred why none may read what was
	// published before it subscribed; nil: it may.
	Barred        *code.Error
	HistoryBarred *code.Error
	// ClientPresence is what clients see of who is in a topic, and ClientPresenceMembers of how
	// many users by name.
	ClientPresence        pushmeshv1.ClientPresence
	ClientPresenceMembers int
	// DeliveredEvents: every ACK of a durable message is an event while somebody wants these.
	DeliveredEvents bool
	// Rank is how its messages are ranked, as the namespace has it; nil: they are not. It must not
	// be changed.
	Rank *pushmeshv1.RankPolicy
	// Claims is how its resources are claimed; never nil.
	Claims *Claims
	// KeepLast: each topic keeps its newest message beyond Retention, until one without a payload
	// deletes it. At most MaxKept topics do.
	KeepLast bool
	MaxKept  int
}

// Builtin namespaces: they come with the mesh and stand wherever the store has not said otherwise.
func Builtin() []*pushmeshv1.Namespace {
	day := 24 * time.Hour
	return []*pushmeshv1.Namespace{
		{Prefix: Default, Builtin: true, Policy: &pushmeshv1.Policy{}},
		{Prefix: "global", Builtin: true, Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(day)}},
		{Prefix: "room", Builtin: true, Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(day)}},
		{Prefix: "user", Builtin: true, Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(7 * day)}},
		{Prefix: Dead, Builtin: true, Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(7 * day)}},
		{Prefix: Events, Builtin: true, Policy: &pushmeshv1.Policy{}},
		{Prefix: Audit, Builtin: true, Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(90 * day)}},
	}
}

// of applies the defaults to a namespace that passed Check.
func of(ns *pushmeshv1.Namespace) *Policy {
	p := ns.GetPolicy()
	redeliveries := uint32(DefaultMaxRedeliveries)
	if p != nil && p.MaxRedeliveries != nil {
		redeliveries = p.GetMaxRedeliveries()
	}
	most := 0
	if p.GetKeep() == pushmeshv1.Keep_KEEP_LAST {
		most = int(orDefault(p.GetMaxKept(), DefaultMaxKept))
	}
	return &Policy{
		Prefix:           ns.GetPrefix(),
		Durable:          p.GetDurable(),
		Retention:        duration(p.GetRetention(), DefaultRetention),
		AckTimeout:       duration(p.GetAckTimeout(), DefaultAckTimeout),
		DedupeWindow:     duration(p.GetDedupeWindow(), DefaultDedupeWindow),
		MaxRedeliveries:  redeliveries,
		MaxAttempts:      orDefault(p.GetMaxAttempts(), DefaultMaxAttempts),
		DeadLetterTopic:  orDefault(p.GetDeadLetterTopic(), DeadTopic(ns.GetPrefix())),
		Overflow:         p.GetOverflow(),
		Presence:         p.GetPresence(),
		MaxPayload:       int(orDefault(p.GetMaxPayload(), DefaultMaxPayload)),
		ProducerRate:     int(p.GetProducerRate()),
		ProducerInFlight: int(p.GetProducerInFlight()),
		ClientPublish:    p.GetClientPublish(),
		Barred:           barred(ns),
		HistoryBarred:    historyBarred(ns),
		ClientPresence:   p.GetClientPresence(), ClientPresenceMembers: int(orDefault(p.GetClientPresenceMembers(), DefaultClientPresenceMembers)),
		DeliveredEvents: p.GetDeliveredEvents() && !events.IsEvent(ns.GetPrefix()),
		Rank:            p.GetRank(),
		Claims:          claimsOf(ns.GetPrefix(), p.GetClaims()),
		KeepLast:        p.GetKeep() == pushmeshv1.Keep_KEEP_LAST,
		MaxKept:         most,
	}
}

// DeadTopic is where dead letters of a namespace are copied to unless its policy names another
// topic.
func DeadTopic(prefix string) string { return Dead + "/" + prefix }

func duration(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	return orDefault(d.AsDuration(), otherwise)
}

func orDefault[V comparable](v, otherwise V) V {
	var zero V
	if v == zero {
		return otherwise
	}
	return v
}
