package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A Message frame is put together from three parts, which protobuf allows because the order of
// fields is free: a head (topic, seq) known after the commit, the body that the router encoded
// once, and a tail with what differs between subscribers.

// AppendMessage appends the whole Message frame without a tail: header, head and body.
// It returns nil where the body of the frame would exceed MaxBody.
func AppendMessage(dst []byte, topic string, seq uint64, body []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendHead(dst, topic, seq)
	dst = append(dst, body...)
	n := len(dst) - at - HeaderSize
	if n > MaxBody {
		return nil
	}
	PutHeader(dst[at:], n, wirev1.FrameType_FRAME_TYPE_MESSAGE)
	return dst
}

// AppendHead appends the fields topic and seq of a Message.
func AppendHead(dst []byte, topic string, seq uint64) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, topic)
	if seq > 0 {
		dst = protowire.AppendTag(dst, 2, protowire.VarintType)
		dst = protowire.AppendVarint(dst, seq)
	}
	return dst
}

// AppendTail appends the fields of a Message that differ between subscribers; zero values are left
// out.
func AppendTail(dst []byte, attempt uint32, score float64, subs []uint32) []byte {
	if attempt > 0 {
		dst = protowire.AppendTag(dst, 7, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(attempt))
	}
	if score != 0 {
		dst = protowire.AppendTag(dst, 10, protowire.Fixed64Type)
		dst = protowire.AppendFixed64(dst, math.Float64bits(score))
	}
	if len(subs) > 0 {
		size := 0
		for _, s := range subs {
			size += protowire.SizeVarint(uint64(s))
		}
		dst = protowire.AppendTag(dst, 11, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(size))
		for _, s := range subs {
			dst = protowire.AppendVarint(dst, uint64(s))
		}
	}
	return dst
}

// AppendUnranked appends, behind a tail, that the message should have been ranked for its
// subscription and was not.
func AppendUnranked(dst []byte) []byte {
	dst = protowire.AppendTag(dst, 15, protowire.VarintType)
	return protowire.AppendVarint(dst, 1)
}
