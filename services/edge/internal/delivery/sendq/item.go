package sendq

import (
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Kind is what an item of a queue is.
type Kind uint8

// The kinds of items.
const (
	Dead    Kind = iota // was dropped in the middle of the queue
	Answer              // a frame of the edge's own
	Message             // one message, or a run of several
	Gap                 // a Progress: seqs that will not come, or a new epoch
	Rest                // of a message whose beginning was sent
)

// Stream is what a queue knows of the position that a message or a gap belongs to: a connection has
// one for each durable topic that it reads. Its owner embeds it.
type Stream struct{ queued uint32 }

// Queued is how many of its messages are in the queue.
func (s *Stream) Queued() uint32 { return s.queued }

// Item is one frame, or a run of frames, in a queue. Messages are shared by reference; what differs
// between subscribers is encoded only when it is written to the socket.
type Item struct {
	message *exchange.Message // the first of a run
	stream  *Stream           // of a durable message or a gap
	bytes   []byte            // what is shared, or of the edge's own; of a run all frames
	extra   uint64            // of a gap its first seq, of a message its Mark
	count   uint32            // messages
	sub     uint32            // subscription id: see ForSubscription
	rank    uint32            // milliseconds: when it came, less what its priority is worth
	attempt uint16            // of a gap made of messages that were queued: its Code
	kind    Kind
	flags   uint8
}

const (
	again uint8 = 1 << iota // a redelivery
	named                   // the ids of subscriptions belong into its frame
)

const itemSize = int(unsafe.Sizeof(Item{}))

// AnswerOf is an item for a frame of the edge's own.
func AnswerOf(frame []byte) Item { return Item{kind: Answer, bytes: frame} }

// GapOf is an item for a Progress of a stream that begins at a seq, 0 for a change of epoch. It is
// as urgent as a message of the priority.
func GapOf(s *Stream, from uint64, frame []byte, priority uint8) Item {
	return Item{kind: Gap, stream: s, extra: from, bytes: frame, rank: lead(priority)}
}

// Delivery is an item for a message of a stream; nil: of none. isNamed says that the ids of
// subscriptions belong into its frame.
func Delivery(m *exchange.Message, s *Stream, isNamed bool, mark Mark) Item {
	it := Item{kind: Message, message: m, stream: s, bytes: m.Frame, count: 1, extra: uint64(mark)}
	if isNamed {
		it.flags = named
	}
	return it
}

// Redelivery is an item for a message that was sent before.
func Redelivery(m *exchange.Message, s *Stream, isNamed bool, attempt uint16) Item {
	it := Delivery(m, s, isNamed, 0)
	it.attempt, it.flags = attempt, it.flags|again
	return it
}

// Assignment is an item for a message of a group's member, which is a subscription.
func Assignment(m *exchange.Message, sub uint32, attempt uint16) Item {
	it := Delivery(m, nil, true, 0)
	if it.sub, it.attempt = sub, attempt; attempt > 0 {
		it.flags |= again
	}
	return it
}

// SetAttempt says how often the message of a first delivery was sent to others, or by others.
func (it *Item) SetAttempt(n uint16) { it.attempt = n }

// ForSubscriptions makes a message that belongs to no stream one of the subscriptions with these
// ids. For several of them it is encoded at once; lowest tells such messages apart in the queue.
func (it *Item) ForSubscriptions(lowest uint32, ids []uint32, several bool) {
	it.sub, it.flags = lowest, it.flags|named
	if !several {
		return
	}
	score, isUnranked := it.Mark().of()
	whole := make([]byte, wire.HeaderSize, len(it.message.Frame)+16+5*len(ids))
	whole = append(whole, it.message.Frame[wire.HeaderSize:]...)
	whole = wire.AppendTail(whole, 0, score, ids)
	if isUnranked {
		whole = wire.AppendUnranked(whole)
	}
	wire.PutHeader(whole, len(whole)-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_MESSAGE)
	it.bytes, it.extra = whole[:len(whole):len(whole)], uint64(encoded)
}

// Kind of the item.
func (it *Item) Kind() Kind { return it.kind }

// Message of the item, the first of a run; nil: it has none.
func (it *Item) Message() *exchange.Message { return it.message }

// Stream of the item; nil: it belongs to none.
func (it *Item) Stream() *Stream { return it.stream }

// Bytes of the item, as it is shared.
func (it *Item) Bytes() []byte { return it.bytes }

// Count of its messages.
func (it *Item) Count() uint32 { return it.count }

// Subscription is the lowest id of those that the message was addressed to; 0: it was not.
func (it *Item) Subscription() uint32 { return it.sub }

// Attempt of a message.
func (it *Item) Attempt() uint16 { return it.attempt }

// Again reports whether it is a redelivery.
func (it *Item) Again() bool { return it.flags&again != 0 }

// Mark of a message.
func (it *Item) Mark() Mark { return Mark(it.extra) }

// From is the first seq of a gap; 0: it is a change of epoch.
func (it *Item) From() uint64 { return it.extra }

// MadeFor reports whether a gap was made of messages that were queued, for such a reason: it may
// grow.
func (it *Item) MadeFor(why wirev1.Code) bool { return it.kind == Gap && it.attempt == uint16(why) }

// Plain reports whether a message is sent as it is in its bytes.
func (it *Item) Plain() bool {
	return it.attempt == 0 && (it.flags&named == 0 || Mark(it.extra) == encoded)
}

// NeedsIDs reports whether its frame has the ids of subscriptions that the caller of Gathering.Add
// knows.
func (it *Item) NeedsIDs() bool {
	return it.kind == Message && it.flags&named != 0 && it.sub == 0 && !it.Plain()
}

// sameTopic compares the topics of messages and gaps.
func sameTopic(a, b *Item) bool {
	switch {
	case a.message != nil && b.message != nil:
		return a.message.Topic == b.message.Topic
	case a.message != nil:
		return string(gapTopic(b.bytes)) == a.message.Topic
	case b.message != nil:
		return string(gapTopic(a.bytes)) == b.message.Topic
	}
	return string(gapTopic(a.bytes)) == string(gapTopic(b.bytes))
}

// gapTopic is the topic of an encoded Progress, which is its first field.
func gapTopic(frame []byte) []byte {
	num, typ, n := protowire.ConsumeTag(frame[wire.HeaderSize:])
	if num != 1 || typ != protowire.BytesType {
		return nil
	}
	name, _ := protowire.ConsumeBytes(frame[wire.HeaderSize+n:])
	return name
}
