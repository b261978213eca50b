// Package config is what a hub is made with: its neighbours, and what it is bounded by.
package config

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/refusals"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/letters"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/permissions"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// Hub is what a hub is made with. Mesh's methods must not block.
type Hub struct {
	Loop      uint16
	EdgeID    string
	Mesh      exchange.Mesh
	PolicyFor func(topic string) *policy.Policy
	// Unknown is the refusal of every Hello while the edge does not know the namespaces; nil, or
	// that it returns nil: it does. Refuses is the refusal of a topic, or of a filter that may
	// match one, whose namespace the edge does not understand; nil: there is none. Neither blocks.
	Unknown func() *code.Error
	Refuses func(filter string) *code.Error
	Limits  Limits
	// Budget is what all queues of the loop may hold; nil: QueueMemory of the limits.
	Budget *budget.Share
	// Kept is what connections may have kept for them beside their queues; the hub fills in Client
	// and Address where they are nil.
	Kept kept.Config
	// Principals says who comes in.
	Principals principals.Config
	// Permissions is asked what users may do beyond their rights; nil: nobody is.
	Permissions permissions.Asker
	// Events takes what happens to connections and subscriptions; nil: nobody wants it.
	Events *eventring.Ring
	// Refusals logs some of what is refused for who somebody is; nil: none.
	Refusals *refusals.Log
	// Unhealthy is what becomes of links that are; "" is off. Path is what the kernel knows of a
	// connection, zero where it says nothing; nil: nothing of any. Gate is what the edge's loops
	// share; nil: this is the only one.
	Unhealthy linkhealth.Mode
	Path      func(slot uint32) linkhealth.Path
	Gate      *linkhealth.Gate
	// Origin is the address for which a connection's sessions, groups and bytes count, "" where it
	// is exempt; nil: none count for any. It is asked for a Hello with a session, a Subscribe with
	// a group, and once where much is kept for a connection.
	Origin func(slot uint32) string
	// LiveDone is called once a Live event was fanned out to its end.
	LiveDone func(exchange.Live)
}

// Fill gives what is zero and no setting a value.
func (cfg *Hub) Fill() {
	if cfg.LiveDone == nil {
		cfg.LiveDone = func(exchange.Live) {}
	}
	if cfg.Path == nil {
		cfg.Path = func(uint32) linkhealth.Path { return linkhealth.Path{} }
	}
	if cfg.Unhealthy == "" {
		cfg.Unhealthy = linkhealth.Off
	}
	if cfg.Gate == nil {
		cfg.Gate = linkhealth.NewGate(int(cfg.Loop) + 1)
	}
	if cfg.Unknown == nil {
		cfg.Unknown = func() *code.Error { return nil }
	}
	if cfg.Refuses == nil {
		cfg.Refuses = func(string) *code.Error { return nil }
	}
	cfg.Limits.fill()
}

// Limits bound what one connection and one loop may hold. The first ones are settings of the edge,
// which have their defaults there; the others are as delivery has them where they are zero.
type Limits struct {
	MaxFrame         int // bytes of a frame's body after Welcome
	Subscriptions    int // per connection
	QueueMessages    int // per connection
	QueueBytes       int // per connection
	HandshakeTimeout time.Duration
	FrameTimeout     time.Duration // for a frame that has begun
	StuckTimeout     time.Duration // for a client that takes nothing of what is queued
	// messages in a millisecond for all that are behind; 0: no limit
	ReplayPace  int
	DeadLetters letters.Limits // in a second, for want of ACKs

	WildcardTopics int // a wildcard with ack, a session or a start other than LIVE
	QueueMemory    int // all queues of the loop together, where it shares no budget
	PublishWindow  int // per connection
	ReceiveWindow  uint32
	ReadBytes      int // asked for at a time by a subscription that is behind
	// seqs of a topic that a session may be sent behind the first that it has not ACKed;
	// cursor.Span at most
	Span int
}

// fill gives those that are no settings a value.
func (l *Limits) fill() {
	set(&l.WildcardTopics, 1000)
	set(&l.QueueMemory, 512<<20)
	set(&l.PublishWindow, 64)
	l.PublishWindow = min(l.PublishWindow, math.MaxUint16)
	set(&l.ReceiveWindow, 256)
	set(&l.ReadBytes, 128<<10)
	set(&l.Span, cursor.Span)
}

func set[V int | uint32](v *V, otherwise V) {
	if *v <= 0 {
		*v = otherwise
	}
}
