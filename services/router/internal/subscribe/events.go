package subscribe

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// events is a SubscribeResponse that grows, in its encoded form: a frame's body is a
// SubscribeEvent's field of the frame's number.
type events struct {
	buf      []byte
	messages int
}

// fieldEvents is SubscribeResponse.events.
const fieldEvents = 1

func (e *events) add(t wirev1.FrameType, body []byte) {
	field := protowire.Number(t)
	e.buf = protowire.AppendTag(e.buf, fieldEvents, protowire.BytesType)
	e.buf = protowire.AppendVarint(e.buf, uint64(protowire.SizeTag(field)+protowire.SizeBytes(len(body))))
	e.buf = protowire.AppendTag(e.buf, field, protowire.BytesType)
	e.buf = protowire.AppendBytes(e.buf, body)
	if t == wirev1.FrameType_FRAME_TYPE_MESSAGE {
		e.messages++
	}
}

// keep is the most that is kept of a buffer which one large message has made grow.
const keep = 128 << 10

func (e *events) reset() {
	if cap(e.buf) > keep {
		e.buf = nil
	}
	e.buf, e.messages = e.buf[:0], 0
}
