package pushmesh

import (
	"fmt"
	"strings"

	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Option of a subscription. What does not go together, or is said twice, is a ConfigError.
type Option interface{ apply(w *wanted) }

// wanted is a subscription as options say it.
type wanted struct {
	*wirev1.Subscribe
	said    map[string]bool // names of options
	start   string          // the option that says where to begin; "": none
	doubled string          // an option that was given twice, or a second start
	manual  bool
	workers int // 0: handlers run on the Subscriber's goroutine
}

type option struct {
	name string
	set  func(w *wanted)
}

func (o option) apply(w *wanted) {
	if w.said[o.name] && w.doubled == "" {
		w.doubled = o.name
	}
	w.said[o.name] = true
	o.set(w)
}

// starting is an option that says where to begin.
func starting(name string, set func(w *wanted)) Option {
	return option{name, func(w *wanted) {
		if w.start != "" && w.doubled == "" {
			w.doubled = name
		}
		w.start = name
		set(w)
	}}
}

// Position is a place in a topic's log: everything up to Seq is had.
type Position struct {
	Topic string
	Epoch uint64
	Seq   uint64
}

// WithAck has every message ACKed after its handler returned nil, and redelivered until it was.
func WithAck() Option { return option{"WithAck", func(w *wanted) { w.Ack = true }} }

// WithManualAck has every message ACKed by Delivery.Ack alone, from whichever goroutine and
// whenever that is; what a handler returns says nothing, unless it is an error, which is a Nack.
// Until then the message counts for ReceiveWindow, and is handed over again by another process
// that goes on here.
func WithManualAck() Option {
	return option{"WithManualAck", func(w *wanted) { w.Ack, w.manual = true, true }}
}

// WithConcurrency has up to n handlers of the subscription run at once, of different topics each:
// those of one topic run one at a time, in order. Then a slow topic, or a slow subscription, does
// not hold up others, until what waits for it fills the window. Without it, handlers of all
// subscriptions run one at a time.
func WithConcurrency(n int) Option {
	return option{"WithConcurrency", func(w *wanted) { w.workers = n }}
}

// FromEarliest starts with the oldest message that is retained.
func FromEarliest() Option {
	return starting("FromEarliest", func(w *wanted) { w.Start = wirev1.Start_START_EARLIEST })
}

// FromLast starts with the last n messages.
func FromLast(n uint64) Option {
	return starting("FromLast", func(w *wanted) { w.Start, w.Seq = wirev1.Start_START_LAST_N, n })
}

// FromSeq starts after seq of the epoch (0: whichever holds).
func FromSeq(epoch, seq uint64) Option {
	return starting("FromSeq", func(w *wanted) { w.Start, w.Epoch, w.Seq = wirev1.Start_START_AFTER_SEQ, epoch, seq })
}

// FromSession goes on where SubscriberConfig.Session stands; a new session starts at the head. It
// has messages ACKed, as WithAck: that is what moves a session on.
func FromSession() Option {
	return starting("FromSession", func(w *wanted) { w.Start, w.Ack = wirev1.Start_START_SESSION, true })
}

// FromPositions goes on after the positions; topics that are not named start at their head, or as
// FromEarliest or FromLast says.
func FromPositions(positions ...Position) Option {
	return option{"FromPositions", func(w *wanted) {
		for _, p := range positions {
			w.Positions = append(w.Positions, &wirev1.Position{Topic: p.Topic, Epoch: p.Epoch, Seq: p.Seq})
		}
	}}
}

// WithGroup shares the filter's messages with all other subscriptions of this group and filter, on
// whichever connections: each message goes to one of them. The group has a position of its own;
// where a new one begins, its first subscription says. Usually WithAck goes with it: what a
// subscription has not ACKed in time, or when it goes, is delivered to another. A handler may then
// see a message twice (Delivery.Attempt is above 0).
func WithGroup(name string) Option {
	return option{"WithGroup", func(w *wanted) { w.Group = name }}
}

// KeyTopic has messages of a topic go to the same subscription.
const KeyTopic = "topic"

// KeyHeader has messages with the same value of a header go to the same subscription.
func KeyHeader(name string) string { return "header:" + name }

// WithGroupKey has messages of one key (KeyTopic, or KeyHeader of a name) go to the same
// subscription of the group, in order. All subscriptions of a group say the same.
func WithGroupKey(key string) Option {
	return option{"WithGroupKey", func(w *wanted) { w.GroupKey = key }}
}

// WithWhere has only messages delivered for which a CEL expression over headers, features,
// priority, topic, from and payload (where that is JSON) is true. The others count as ACKed. Not
// for groups.
func WithWhere(expr string) Option {
	return option{"WithWhere", func(w *wanted) { w.Where = expr }}
}

// WithRankTopK has the messages of a topic gathered for a short while, as the rank policy of its
// namespace says, ranked for the connection's profile (SubscriberConfig.Profile), and delivered
// best first: the best k with their Delivery.Score; what the policy says about the rest follows in
// order, or does not come. Such a subscription resumes by its session alone (FromSession): without
// one, what was published while there was no connection is a Gap. Not for groups, and not from
// positions.
func WithRankTopK(k uint32) Option {
	return option{"WithRankTopK", func(w *wanted) { w.RankTopK = k }}
}

// WithoutLast begins at the head in topics that keep their last message (keep LAST in their
// namespace), rather than with that message.
func WithoutLast() Option { return option{"WithoutLast", func(w *wanted) { w.SkipLast = true }} }

// WithWindow is the most un-ACKed messages of the subscription; by default the connection's.
func WithWindow(n uint32) Option {
	return option{"WithWindow", func(w *wanted) { w.ReceiveWindow = n }}
}

// Overflow says what happens to a subscription that can't keep up.
type Overflow int32

const (
	// OverflowDefault reads on from the log later in durable topics, and drops the oldest in
	// ephemeral ones.
	OverflowDefault Overflow = Overflow(wirev1.Overflow_OVERFLOW_DEFAULT)
	// OverflowDropOldest drops the oldest messages.
	OverflowDropOldest Overflow = Overflow(wirev1.Overflow_OVERFLOW_DROP_OLDEST)
	// OverflowConflate keeps the newest message of each topic.
	OverflowConflate Overflow = Overflow(wirev1.Overflow_OVERFLOW_CONFLATE)
	// OverflowDisconnect ends the connection, which is then made again.
	OverflowDisconnect Overflow = Overflow(wirev1.Overflow_OVERFLOW_DISCONNECT)
)

// WithOverflow says what happens when the subscription can't keep up.
func WithOverflow(o Overflow) Option {
	return option{"WithOverflow", func(w *wanted) { w.Overflow = wirev1.Overflow(o) }}
}

// WithoutEcho leaves out what this client publishes itself: its user with its client id, over
// whatever connection.
func WithoutEcho() Option { return option{"WithoutEcho", func(w *wanted) { w.NoEcho = true }} }

// want applies options, and refuses what can't work before anything is sent.
func want(filter string, opts []Option, cfg *SubscriberConfig, pulled bool) (*wanted, error) {
	w := &wanted{Subscribe: &wirev1.Subscribe{Filter: filter}, said: map[string]bool{}}
	if why := topicfilter.Fault(filter); why != "" {
		return nil, &Error{Code: CodeBadTopic, Message: fmt.Sprintf("filter %.40q: %s", filter, why)}
	}
	for i, o := range opts {
		if o == nil {
			return nil, misconfigured("Option", "%d of the subscription to %.40q is nil", i+1, filter)
		}
		o.apply(w)
	}
	if err := w.check(cfg, pulled); err != nil {
		return nil, err
	}
	return w, nil
}

// apart are pairs of options of which the second makes no sense beside the first.
var apart = []struct{ a, b, why string }{
	{"FromSession", "FromPositions", "a session has positions of its own"},
	{"FromSeq", "FromPositions", "both are positions: name the topic with FromPositions"},
	{"WithGroup", "WithWhere", "the members of a group see what the group sees"},
	{"WithGroup", "WithRankTopK", "a group's messages are not ranked"},
	{"WithGroup", "FromSession", "a group has a position of its own"},
	{"WithRankTopK", "FromSeq", "what came best first leaves no position to go on behind: use FromSession"},
	{"WithRankTopK", "FromPositions", "what came best first leaves no position to go on behind: use FromSession"},
	{"WithoutLast", "FromEarliest", "it begins with the oldest message"},
	{"WithoutLast", "FromLast", "it begins with the last messages"},
}

func (w *wanted) check(cfg *SubscriberConfig, pulled bool) error {
	if name := w.doubled; name != "" {
		if strings.HasPrefix(name, "From") && name != "FromPositions" {
			return misconfigured(name, "is a second option that says where the subscription to %.40q begins: give one of FromEarliest, FromLast, FromSeq and FromSession", w.Filter)
		}
		return misconfigured(name, "is given twice for the subscription to %.40q", w.Filter)
	}
	for _, p := range apart {
		if w.said[p.a] && w.said[p.b] {
			return misconfigured(p.b, "does not go with %s: %s", p.a, p.why)
		}
	}
	switch {
	case w.said["FromSession"] && cfg.Session == "":
		return misconfigured("FromSession", "needs SubscriberConfig.Session, the name of the session")
	case w.said["WithGroup"] && w.Group == "":
		return misconfigured("WithGroup", "needs the name of a group")
	case w.Group == "" && w.said["WithGroupKey"]:
		return misconfigured("WithGroupKey", "needs WithGroup")
	case w.said["WithConcurrency"] && w.workers < 1:
		return misconfigured("WithConcurrency", "is %d, it must be 1 or more", w.workers)
	case w.said["WithWindow"] && !w.Ack && w.Group == "":
		return misconfigured("WithWindow", "needs WithAck or WithGroup: it bounds messages that are not ACKed")
	case pulled && w.workers > 0:
		return misconfigured("WithConcurrency", "does not go with Pull: as many goroutines as take its messages handle them")
	case cfg.Inline && (w.manual || w.workers > 0 || pulled):
		return misconfigured("WithManualAck", "and WithConcurrency and Pull do not go with SubscriberConfig.Inline, whose messages are valid until the handler returns")
	case len(w.Positions) > maxPositions:
		return &Error{Code: CodeTooManyTopics, Message: fmt.Sprintf("FromPositions has %d positions, %d at most", len(w.Positions), maxPositions)}
	}
	return nil
}
