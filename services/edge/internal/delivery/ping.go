package delivery

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
)

// Fields of Ping; Pong has the first alone.
const (
	sentAt  = 1
	lastRTT = 2
)

// ping answers with what was sent, decoded and encoded in place: but for the arena, of which one is
// made for some hundred Pongs, nothing is allocated.
func (h *Hub) ping(c *conn, body []byte) bool {
	var at, reported uint64
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return false
		}
		body = body[n:]
		switch {
		case num == sentAt && typ == protowire.Fixed64Type:
			at, n = protowire.ConsumeFixed64(body)
		case num == lastRTT && typ == protowire.VarintType:
			reported, n = protowire.ConsumeVarint(body)
		default:
			n = protowire.ConsumeFieldValue(num, typ, body)
		}
		if n < 0 {
			return false
		}
		body = body[n:]
	}
	it := sendq.AnswerOf(h.pong(at))
	h.push(c, &it)
	h.waker.clearTurn(c)
	h.heartbeat(c, uint32(reported))
	return true
}

// pong makes the frame.
func (h *Hub) pong(at uint64) []byte {
	var body [9]byte
	n := 0
	if at != 0 {
		n = len(protowire.AppendFixed64(protowire.AppendTag(body[:0], sentAt, protowire.Fixed64Type), at))
	}
	return h.queues.ShortFrame(wirev1.FrameType_FRAME_TYPE_PONG, body[:n])
}
