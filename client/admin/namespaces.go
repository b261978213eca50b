package admin

import (
	"context"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Namespace is a topic prefix of whole levels with a policy: the longest prefix that covers a topic
// applies. "default" has the policy of topics that none covers.
type Namespace struct {
	Prefix string
	Policy Policy
	// Version grows with every change.
	Version uint64
	// Builtin exists in every mesh; it may be changed, but not deleted.
	Builtin bool
	// NotUnderstood is why the mesh refuses the topics, where a newer version wrote the policy.
	NotUnderstood string
}

// Policy says how the topics of a namespace behave. Zero values are the mesh's defaults. One that
// was read keeps what a later version of the mesh has and this package does not know, so that it
// can be changed and put back.
type Policy struct {
	Durable bool
	// Retention is how long messages stay: 24 h by default, 366 days at most.
	Retention time.Duration
	// AckTimeout after which a message is sent again: 2 s by default.
	AckTimeout time.Duration
	// MaxRedeliveries on one connection; nil: 2.
	MaxRedeliveries *uint32
	// MaxAttempts on all connections together, before the message is a dead letter: 16 by default.
	MaxAttempts uint32
	// DeadLetterTopic that dead letters are copied to: $dead/PREFIX by default.
	DeadLetterTopic string
	Overflow        pushmesh.Overflow
	// Presence lets backends see who is in a topic.
	Presence bool
	// MaxPayload in bytes: 262,144 by default.
	MaxPayload uint32
	// ProducerRate and ProducerInFlight are how many messages a producer may publish in a second,
	// and have unanswered; 0: as routers are set.
	ProducerRate, ProducerInFlight uint32
	// ClientPublish lets clients publish over their connection.
	ClientPublish bool
	// DedupeWindow is how long dedupe keys are remembered: 2 min by default, 24 h at most.
	DedupeWindow time.Duration
	// Rank is how subscriptions WithRankTopK are served; nil: they are refused.
	Rank *RankPolicy
	// Claims is how resources are claimed; nil: by backends only.
	Claims          *ClaimPolicy
	ClientSubscribe ClientSubscribe
	ClientHistory   ClientHistory
	// DeliveredEvents has every ACK of a durable message be an event.
	DeliveredEvents bool
	Keep            Keep
	// MaxKept is how many topics may keep a message, with KeepLast: 1,000,000 by default.
	MaxKept        uint32
	ClientPresence ClientPresence
	// ClientPresenceMembers is how many users of a topic clients see by name: 200 by default.
	ClientPresenceMembers uint32

	rest rest
}

// rest is what this package does not know of a message.
type rest = protoreflect.RawFields

// ClientSubscribe says who of the clients may subscribe.
type ClientSubscribe int32

// Who may: whoever is granted it, or no client.
const (
	SubscribeGranted = ClientSubscribe(pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_GRANTED_UNSPECIFIED)
	SubscribeNone    = ClientSubscribe(pushmeshv1.ClientSubscribe_CLIENT_SUBSCRIBE_NONE)
)

// ClientHistory says which clients may read what was published before they subscribed.
type ClientHistory int32

// Which: whoever may subscribe, or no client.
const (
	HistoryGranted = ClientHistory(pushmeshv1.ClientHistory_CLIENT_HISTORY_GRANTED_UNSPECIFIED)
	HistoryNone    = ClientHistory(pushmeshv1.ClientHistory_CLIENT_HISTORY_NONE)
)

// Keep says what stays of a topic beyond its retention.
type Keep int32

// What: nothing, or the newest message, until one without a payload deletes it.
const (
	KeepRetention = Keep(pushmeshv1.Keep_KEEP_RETENTION_UNSPECIFIED)
	KeepLast      = Keep(pushmeshv1.Keep_KEEP_LAST)
)

// ClientPresence says what clients may see of who is in a topic.
type ClientPresence int32

// What: nothing, how many users there are, or which.
const (
	PresenceOff     = ClientPresence(pushmeshv1.ClientPresence_CLIENT_PRESENCE_OFF_UNSPECIFIED)
	PresenceCounts  = ClientPresence(pushmeshv1.ClientPresence_CLIENT_PRESENCE_COUNTS)
	PresenceMembers = ClientPresence(pushmeshv1.ClientPresence_CLIENT_PRESENCE_MEMBERS)
)

// ClaimPolicy says how resources of a namespace are claimed. Zero values are the mesh's defaults.
type ClaimPolicy struct {
	// Holders is how many may hold a resource at a time: 1 by default, 1,000 at most.
	Holders uint32
	// TTL of a hold that names none, 30 s by default, and MaxTTL that one may name, 1 h by default.
	TTL, MaxTTL time.Duration
	// MaxHold is how long a hold may last, however often it is renewed, and MaxWait how long
	// somebody may wait in the line; 0: no limit.
	MaxHold, MaxWait time.Duration
	// MaxWaiting is how many may wait for a resource: 10,000 by default.
	MaxWaiting uint32
	// Grace is how long a client keeps its place after its connection ended: 10 s by default.
	Grace time.Duration
	// WaitTTL is how long who polls keeps a place in the line without a call, 15 s by default, and
	// OfferTTL how long a grant that was pushed waits for being taken up, 2 s by default.
	WaitTTL, OfferTTL time.Duration
	// Clients may claim over their connection, with priorities up to MaxClientPriority.
	Clients           bool
	MaxClientPriority uint32
	// Prepare is called before a grant; nil: nothing is.
	Prepare *ClaimPrepare

	rest rest
}

// ClaimPrepare is a service that prepares a resource for who gets it.
type ClaimPrepare struct {
	// URL: http://…, https://… or grpc://HOST:PORT.
	URL string
	// Deadline of a call: 1 s by default.
	Deadline time.Duration
	// Concurrency is how many calls there may be at a time, on each store: 1 by default.
	Concurrency uint32

	rest rest
}

// Namespaces are all of the mesh.
func (c *Client) Namespaces(ctx context.Context) ([]Namespace, error) {
	r, err := ask(ctx, c.namespaces.List, &pushmeshv1.NamespaceServiceListRequest{})
	return mapped(r.GetNamespaces(), namespaceOf), err
}

// Namespace is the one of a prefix, exactly.
func (c *Client) Namespace(ctx context.Context, prefix string) (Namespace, error) {
	r, err := ask(ctx, c.namespaces.Get, &pushmeshv1.NamespaceServiceGetRequest{Prefix: prefix})
	if err != nil {
		return Namespace{}, err
	}
	return namespaceOf(r.GetNamespace()), nil
}

// PutNamespace sets the policy of a prefix, and returns once every process of the mesh uses it, or
// after two seconds: then lagging names those that may not yet, as tier and id.
func (c *Client) PutNamespace(ctx context.Context, prefix string, p Policy) (lagging []string, err error) {
	r, err := change(ctx, c.namespaces.Put, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: p.proto()}})
	return r.GetLagging(), err
}

// DeleteNamespace removes the policy of a prefix; lagging is as of PutNamespace.
func (c *Client) DeleteNamespace(ctx context.Context, prefix string) (lagging []string, err error) {
	r, err := change(ctx, c.namespaces.Delete, &pushmeshv1.NamespaceServiceDeleteRequest{Prefix: prefix})
	return r.GetLagging(), err
}

func namespaceOf(m *pushmeshv1.Namespace) Namespace {
	return Namespace{Prefix: m.GetPrefix(), Policy: policyOf(m.GetPolicy()), Version: m.GetVersion(), Builtin: m.GetBuiltin(), NotUnderstood: m.GetNotUnderstood()}
}

func policyOf(m *pushmeshv1.Policy) Policy {
	if m == nil {
		return Policy{}
	}
	return Policy{
		Durable: m.GetDurable(), Retention: m.GetRetention().AsDuration(), AckTimeout: m.GetAckTimeout().AsDuration(), MaxRedeliveries: m.MaxRedeliveries,
		MaxAttempts: m.GetMaxAttempts(), DeadLetterTopic: m.GetDeadLetterTopic(), Overflow: pushmesh.Overflow(m.GetOverflow()), Presence: m.GetPresence(),
		MaxPayload: m.GetMaxPayload(), ProducerRate: m.GetProducerRate(), ProducerInFlight: m.GetProducerInFlight(), ClientPublish: m.GetClientPublish(),
		DedupeWindow: m.GetDedupeWindow().AsDuration(), Rank: rankOf(m.GetRank()), Claims: claimsOf(m.GetClaims()),
		ClientSubscribe: ClientSubscribe(m.GetClientSubscribe()), ClientHistory: ClientHistory(m.GetClientHistory()), DeliveredEvents: m.GetDeliveredEvents(),
		Keep: Keep(m.GetKeep()), MaxKept: m.GetMaxKept(), ClientPresence: ClientPresence(m.GetClientPresence()), ClientPresenceMembers: m.GetClientPresenceMembers(),
		rest: m.ProtoReflect().GetUnknown(),
	}
}

func (p *Policy) proto() *pushmeshv1.Policy {
	m := &pushmeshv1.Policy{
		Durable: p.Durable, Retention: duration(p.Retention), AckTimeout: duration(p.AckTimeout), MaxRedeliveries: p.MaxRedeliveries,
		MaxAttempts: p.MaxAttempts, DeadLetterTopic: p.DeadLetterTopic, Overflow: wirev1.Overflow(p.Overflow), Presence: p.Presence,
		MaxPayload: p.MaxPayload, ProducerRate: p.ProducerRate, ProducerInFlight: p.ProducerInFlight, ClientPublish: p.ClientPublish,
		DedupeWindow: duration(p.DedupeWindow), Rank: p.Rank.proto(), Claims: p.Claims.proto(),
		ClientSubscribe: pushmeshv1.ClientSubscribe(p.ClientSubscribe), ClientHistory: pushmeshv1.ClientHistory(p.ClientHistory), DeliveredEvents: p.DeliveredEvents,
		Keep: pushmeshv1.Keep(p.Keep), MaxKept: p.MaxKept, ClientPresence: pushmeshv1.ClientPresence(p.ClientPresence), ClientPresenceMembers: p.ClientPresenceMembers,
	}
	m.ProtoReflect().SetUnknown(p.rest)
	return m
}

func claimsOf(m *pushmeshv1.ClaimPolicy) *ClaimPolicy {
	if m == nil {
		return nil
	}
	c := &ClaimPolicy{
		Holders: m.GetHolders(), TTL: m.GetTtl().AsDuration(), MaxTTL: m.GetMaxTtl().AsDuration(), MaxHold: m.GetMaxHold().AsDuration(), MaxWait: m.GetMaxWait().AsDuration(),
		MaxWaiting: m.GetMaxWaiting(), Grace: m.GetGrace().AsDuration(), WaitTTL: m.GetWaitTtl().AsDuration(), OfferTTL: m.GetOfferTtl().AsDuration(),
		Clients: m.GetClients(), MaxClientPriority: m.GetMaxClientPriority(), rest: m.ProtoReflect().GetUnknown(),
	}
	if p := m.GetPrepare(); p != nil {
		c.Prepare = &ClaimPrepare{URL: p.GetUrl(), Deadline: p.GetDeadline().AsDuration(), Concurrency: p.GetConcurrency(), rest: p.ProtoReflect().GetUnknown()}
	}
	return c
}

func (c *ClaimPolicy) proto() *pushmeshv1.ClaimPolicy {
	if c == nil {
		return nil
	}
	m := &pushmeshv1.ClaimPolicy{
		Holders: c.Holders, Ttl: duration(c.TTL), MaxTtl: duration(c.MaxTTL), MaxHold: duration(c.MaxHold), MaxWait: duration(c.MaxWait),
		MaxWaiting: c.MaxWaiting, Grace: duration(c.Grace), WaitTtl: duration(c.WaitTTL), OfferTtl: duration(c.OfferTTL),
		Clients: c.Clients, MaxClientPriority: c.MaxClientPriority,
	}
	m.ProtoReflect().SetUnknown(c.rest)
	if p := c.Prepare; p != nil {
		m.Prepare = &pushmeshv1.ClaimPrepare{Url: p.URL, Deadline: duration(p.Deadline), Concurrency: p.Concurrency}
		m.Prepare.ProtoReflect().SetUnknown(p.rest)
	}
	return m
}
