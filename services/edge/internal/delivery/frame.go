package delivery

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
)

// firstOptional is the lowest frame type that an edge which doesn't know it skips.
const firstOptional = 0x80

// Heard says that bytes have come, whole frames or not.
func (h *Hub) Heard(slot uint32) { h.conns.get(slot).heard = h.ms }

// Frames is how many were handled.
func (h *Hub) Frames() uint64 { return h.stats.Frames }

// bytesAsOne is how many bytes of a frame are decoded and copied in about the time of a short one.
const bytesAsOne = 1024

// Feed handles the whole frames that b begins with, at most budget short ones or about as much, and
// says how many bytes they were. It stops early where the connection holds reading or closes; the
// caller keeps what was not used. more says that a whole frame may be left; a long Ack may be
// handled in part, and is given again then.
func (h *Hub) Feed(slot uint32, b []byte, budget int) (used int, more bool) {
	c := h.conns.get(slot)
	for budget > 0 {
		switch {
		case c.state == stateClosing || c.state == stateFree:
			return len(b), false
		case h.holds(c):
			return used, true
		case c.state == stateNew && !h.detect(c, b[used:]):
			return used, false
		}
		n, t, ok := wire.Header(b[used:])
		if !ok {
			h.unfinished(c, len(b)-used)
			return used, false
		}
		if h.tooLarge(c, n) {
			return len(b), false
		}
		if len(b)-used < wire.HeaderSize+n {
			h.unfinished(c, len(b)-used)
			return used, false
		}
		body := b[used+wire.HeaderSize : used+wire.HeaderSize+n]
		done := h.frame(c, t, body)
		budget -= h.toll()
		if !done {
			return used, true
		}
		used += wire.HeaderSize + n
		h.finished(c)
		h.stats.Frames++
		budget -= 1 + n/bytesAsOne
	}
	return used, true
}

// tooLarge fails a connection with a frame that is longer than frames may be at this time.
func (h *Hub) tooLarge(c *conn, n int) bool {
	switch {
	case c.state == stateHello && n > wire.MaxHello:
		h.fail(c, wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("Hello is %d bytes long, 4,096 at most", n))
	case n > h.lim.MaxFrame:
		h.fail(c, wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("a frame's body is %d bytes long, %d (max_frame) at most", n, h.lim.MaxFrame))
	default:
		return false
	}
	return true
}

// detect looks at the first bytes of a connection; false where they are too few or not ours.
func (h *Hub) detect(c *conn, b []byte) bool {
	p, more := wire.Detect(b)
	switch {
	case more:
		return false
	case p == wire.Push:
		c.state = stateHello
		return true
	case p == wire.Unknown:
		h.fail(c, wirev1.Code_CODE_BAD_FRAME, "the first frame is Hello")
	default:
		h.fail(c, wirev1.Code_CODE_UNSUPPORTED, "this edge speaks the push protocol alone")
	}
	return false
}

// frame handles one frame; done is false where it must be given again. body is the caller's: what
// is kept of it is copied.
func (h *Hub) frame(c *conn, t wirev1.FrameType, body []byte) (done bool) {
	if c.state == stateHello {
		h.hello(c, body) // detect saw that it is one
		return true
	}
	done, ok := true, true
	switch t {
	case wirev1.FrameType_FRAME_TYPE_ACK:
		done, ok = h.acks.frame(c, body)
	case wirev1.FrameType_FRAME_TYPE_PING:
		ok = h.ping(c, body)
	case wirev1.FrameType_FRAME_TYPE_NACK:
		ok = decode(body, func(m *wirev1.Nack) { h.acks.nack(c, m) })
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
		ok = h.refuseMany(c, body, t) || decode(body, func(m *wirev1.Subscribe) { h.subscribe(c, m) })
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE:
		ok = decode(body, func(m *wirev1.Unsubscribe) { h.unsubscribe(c, m) })
	case wirev1.FrameType_FRAME_TYPE_PUBLISH:
		ok = h.refuseMany(c, body, t) || decode(body, func(m *wirev1.Publish) { h.publish(c, m) })
	case wirev1.FrameType_FRAME_TYPE_CLAIM:
		ok = decode(body, func(m *wirev1.Claim) { h.claim(c, m) })
	case wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN:
		ok = decode(body, func(m *wirev1.RefreshToken) { h.unsupported(c, m.GetId(), "tokens") })
	case wirev1.FrameType_FRAME_TYPE_HELLO:
		h.fail(c, wirev1.Code_CODE_BAD_FRAME, "a second Hello")
	default:
		if t < firstOptional {
			h.fail(c, wirev1.Code_CODE_UNKNOWN_FRAME, "the frame's type is not one that a client sends")
		}
	}
	if !ok {
		h.fail(c, wirev1.Code_CODE_BAD_FRAME, "a frame's body can't be decoded")
	}
	return done
}

// refuseMany refuses a Subscribe with more positions, or a Publish with more headers, than there
// may be, before any of them is decoded: a frame has room for hundreds of thousands.
func (h *Hub) refuseMany(c *conn, body []byte, t wirev1.FrameType) bool {
	id, why := h.rules.Many(t, body)
	switch {
	case why == nil:
		return false
	case id == 0 && t == wirev1.FrameType_FRAME_TYPE_PUBLISH:
		h.stats.Refused.add(why.Code, 1) // no answer is wanted
	case id == 0:
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
	default:
		h.refuse(c, id, why)
	}
	return true
}

// decode hands f the message of body; false where it is malformed.
func decode[M any, P interface {
	*M
	proto.Message
}](body []byte, f func(P)) bool {
	m := P(new(M))
	if proto.Unmarshal(body, m) != nil {
		return false
	}
	f(m)
	return true
}

// unsupported answers a request that later versions serve. Without an id it can't be answered
// alone.
func (h *Hub) unsupported(c *conn, id uint32, what string) {
	if id == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	h.refuse(c, id, code.New(wirev1.Code_CODE_UNSUPPORTED, what+" are not supported"))
}

// ping answers with what was sent, decoded and encoded in place: but for the arena, of which one is
// made for some hundred Pongs, nothing is allocated.
func (h *Hub) ping(c *conn, body []byte) bool {
	sentAt, lastRTT, ok := frames.Ping(body)
	if !ok {
		return false
	}
	it := sendq.AnswerOf(h.pong(sentAt))
	h.push(c, &it)
	h.waker.clearTurn(c)
	h.heartbeat(c, lastRTT)
	return true
}

// pong makes the frame.
func (h *Hub) pong(sentAt uint64) []byte {
	var body [frames.MaxPong]byte
	return h.queues.ShortFrame(wirev1.FrameType_FRAME_TYPE_PONG, frames.AppendPong(body[:0], sentAt))
}
