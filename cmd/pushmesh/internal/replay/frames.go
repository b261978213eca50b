package replay

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

var errBadMessage = errors.New("a Message frame that can't be decoded")

// Field numbers of pushmesh.wire.v1.Message and Ack.Entry.
const (
	messageSeq     = 2
	messagePayload = 3
	ackEntries     = 1
	entryTopic     = 1
	entrySeq       = 2
	entryThrough   = 3
	entryEpoch     = 5
)

// scanMessage finds seq and payload in the body of a Message frame, and stops once it has both: a
// replay reads tens of millions of them, so nothing else is decoded. payload is a part of body.
func scanMessage(body []byte) (seq uint64, payload []byte, err error) {
	for len(body) > 0 && (seq == 0 || payload == nil) {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return 0, nil, errBadMessage
		}
		body = body[n:]
		switch {
		case num == messageSeq && typ == protowire.VarintType:
			seq, n = protowire.ConsumeVarint(body)
		case num == messagePayload && typ == protowire.BytesType:
			payload, n = protowire.ConsumeBytes(body)
		default:
			n = protowire.ConsumeFieldValue(num, typ, body)
		}
		if n < 0 {
			return 0, nil, errBadMessage
		}
		body = body[n:]
	}
	return seq, payload, nil
}

// appendAck appends an Ack frame for everything up to seq of one topic.
func appendAck(dst []byte, topic string, epoch, seq uint64) []byte {
	at := len(dst)
	size := protowire.SizeTag(entryTopic) + protowire.SizeBytes(len(topic)) +
		protowire.SizeTag(entrySeq) + protowire.SizeVarint(seq) +
		protowire.SizeTag(entryThrough) + 1 +
		protowire.SizeTag(entryEpoch) + protowire.SizeFixed64()
	dst = append(dst, 0, 0, 0, 0)
	dst = protowire.AppendTag(dst, ackEntries, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = protowire.AppendTag(dst, entryTopic, protowire.BytesType)
	dst = protowire.AppendString(dst, topic)
	dst = protowire.AppendTag(dst, entrySeq, protowire.VarintType)
	dst = protowire.AppendVarint(dst, seq)
	dst = protowire.AppendTag(dst, entryThrough, protowire.VarintType)
	dst = protowire.AppendVarint(dst, 1)
	dst = protowire.AppendTag(dst, entryEpoch, protowire.Fixed64Type)
	dst = protowire.AppendFixed64(dst, epoch)
	wire.PutHeader(dst[at:], len(dst)-at-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_ACK)
	return dst
}
