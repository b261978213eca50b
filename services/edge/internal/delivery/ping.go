package delivery

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
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
	h.push(c, item{kind: itemControl, b: h.pong(at)})
	h.waker.clearTurn(c)
	h.heartbeat(c, uint32(reported))
	return true
}

// pong makes the frame in the arena.
func (h *Hub) pong(at uint64) []byte {
	start := h.room()
	h.arena = h.arena[:start+wire.HeaderSize]
	if at != 0 {
		h.arena = protowire.AppendFixed64(protowire.AppendTag(h.arena, sentAt, protowire.Fixed64Type), at)
	}
	frame := h.arena[start:len(h.arena):len(h.arena)]
	wire.PutHeader(frame, len(frame)-wire.HeaderSize, wirev1.FrameType_FRAME_TYPE_PONG)
	return frame
}
