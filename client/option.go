package pushmesh

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// Option of a subscription.
type Option func(*wirev1.Subscribe)

// Position is a place in a topic's log: everything up to Seq is had.
type Position struct {
	Topic string
	Epoch uint64
	Seq   uint64
}

// WithAck has every message ACKed after its handler returned nil, and redelivered until it was.
func WithAck() Option { return func(s *wirev1.Subscribe) { s.Ack = true } }

// FromEarliest starts with the oldest message that is retained.
func FromEarliest() Option {
	return func(s *wirev1.Subscribe) { s.Start = wirev1.Start_START_EARLIEST }
}

// FromLast starts with the last n messages.
func FromLast(n uint64) Option {
	return func(s *wirev1.Subscribe) { s.Start, s.Seq = wirev1.Start_START_LAST_N, n }
}

// FromSeq starts after seq of the epoch (0: whichever holds).
func FromSeq(epoch, seq uint64) Option {
	return func(s *wirev1.Subscribe) { s.Start, s.Epoch, s.Seq = wirev1.Start_START_AFTER_SEQ, epoch, seq }
}

// FromSession goes on where SubscriberConfig.Session stands; a new session starts at the head.
func FromSession() Option { return func(s *wirev1.Subscribe) { s.Start = wirev1.Start_START_SESSION } }

// FromPositions goes on after the positions; topics that are not named start at their head.
func FromPositions(positions ...Position) Option {
	return func(s *wirev1.Subscribe) {
		for _, p := range positions {
			s.Positions = append(s.Positions, &wirev1.Position{Topic: p.Topic, Epoch: p.Epoch, Seq: p.Seq})
		}
	}
}

// WithGroup shares the filter's messages with all other subscriptions of this group and filter, on
// whichever connections: each message goes to one of them. The group has a position of its own;
// where a new one begins, its first subscription says. Usually WithAck goes with it: what a
// subscription has not ACKed in time, or when it goes, is delivered to another. A handler may then
// see a message twice (Delivery.Attempt is above 0).
func WithGroup(name string) Option { return func(s *wirev1.Subscribe) { s.Group = name } }

// KeyTopic has messages of a topic go to the same subscription.
const KeyTopic = "topic"

// KeyHeader has messages with the same value of a header go to the same subscription.
func KeyHeader(name string) string { return "header:" + name }

// WithGroupKey has messages of one key (KeyTopic, or KeyHeader of a name) go to the same
// subscription of the group, in order. All subscriptions of a group say the same.
func WithGroupKey(key string) Option { return func(s *wirev1.Subscribe) { s.GroupKey = key } }

// WithWhere has only messages delivered for which a CEL expression over headers, features,
// priority, topic, from and payload (where that is JSON) is true. The others count as ACKed. Not
// for groups.
func WithWhere(expr string) Option { return func(s *wirev1.Subscribe) { s.Where = expr } }

// WithRankTopK has the messages of a topic gathered for a short while, as the rank policy of its
// namespace says, ranked for the connection's profile (SubscriberConfig.Profile), and delivered
// best first: the best k with their Delivery.Score; what the policy says about the rest follows in
// order, or does not come. Such a subscription resumes by its session alone (FromSession): without
// one, what was published while there was no connection is a Gap. Not for groups, and not from
// positions.
func WithRankTopK(k uint32) Option { return func(s *wirev1.Subscribe) { s.RankTopK = k } }

// WithoutLast begins at the head in topics that keep their last message (keep LAST in their
// namespace), rather than with that message.
func WithoutLast() Option { return func(s *wirev1.Subscribe) { s.SkipLast = true } }

// WithWindow is the most un-ACKed messages of the subscription; by default the connection's.
func WithWindow(n uint32) Option { return func(s *wirev1.Subscribe) { s.ReceiveWindow = n } }

// WithOverflow says what happens when the subscription can't keep up.
func WithOverflow(o wirev1.Overflow) Option { return func(s *wirev1.Subscribe) { s.Overflow = o } }

// WithoutEcho leaves out what this client publishes itself: its user with its client id, over
// whatever connection.
func WithoutEcho() Option { return func(s *wirev1.Subscribe) { s.NoEcho = true } }
