package sendq

import (
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// arena is where frames of the edge's own are encoded, one behind the other.
type arena struct{ mem []byte }

const (
	arenaSize = 8 << 10
	// shortFrame is the room that is there for a frame; longer ones may be allocated alone.
	shortFrame = 256
)

// room is where a short frame may be appended, up to shortFrame bytes.
func (a *arena) room() []byte {
	if cap(a.mem)-len(a.mem) < shortFrame {
		a.mem = make([]byte, 0, arenaSize)
	}
	return a.mem[len(a.mem):len(a.mem):cap(a.mem)]
}

// keep takes the room of a frame that was appended there, if it still is.
func (a *arena) keep(frame []byte) []byte {
	if at := len(a.mem); at+len(frame) <= cap(a.mem) {
		a.mem = a.mem[:at+len(frame)]
	}
	return frame[:len(frame):len(frame)]
}

// Encode makes a frame. Messages of the edge's own always encode: their strings were checked.
func (h *Shared) Encode(t wirev1.FrameType, m proto.Message) []byte {
	out, err := wire.Append(h.arena.room(), t, m)
	if err != nil {
		out, _ = wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_INTERNAL})
		return out
	}
	return h.arena.keep(out)
}

// ShortFrame makes a frame of a body that is already encoded, and short.
func (h *Shared) ShortFrame(t wirev1.FrameType, body []byte) []byte {
	frame := append(h.arena.room(), 0, 0, 0, 0)
	frame = append(frame, body...)
	wire.PutHeader(frame, len(body), t)
	return h.arena.keep(frame)
}
