package frames

import "google.golang.org/protobuf/encoding/protowire"

// Fields of Ping; Pong has the first alone.
const (
	pingSentAt  = 1
	pingLastRTT = 2
)

// Ping decodes one: when it was sent, by the client's clock, and the round trip in microseconds
// that the client saw of the one before, 0 for none. ok is false where it is malformed.
func Ping(body []byte) (sentAt uint64, lastRTT uint32, ok bool) {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return 0, 0, false
		}
		body = body[n:]
		var v uint64
		switch {
		case num == pingSentAt && typ == protowire.Fixed64Type:
			sentAt, n = protowire.ConsumeFixed64(body)
		case num == pingLastRTT && typ == protowire.VarintType:
			v, n = protowire.ConsumeVarint(body)
			lastRTT = uint32(v)
		default:
			n = protowire.ConsumeFieldValue(num, typ, body)
		}
		if n < 0 {
			return 0, 0, false
		}
		body = body[n:]
	}
	return sentAt, lastRTT, true
}

// MaxPong is how long the body of a Pong is at most.
const MaxPong = 9

// AppendPong appends the body of the Pong that answers a Ping.
func AppendPong(dst []byte, sentAt uint64) []byte {
	if sentAt == 0 {
		return dst
	}
	return protowire.AppendFixed64(protowire.AppendTag(dst, pingSentAt, protowire.Fixed64Type), sentAt)
}
