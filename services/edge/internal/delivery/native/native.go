// Package native is the protocol of the mesh's own frames, as clients speak it: it cuts what was
// read into frames, decodes them, and has delivery do what each asks for.
package native

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// firstOptional is the lowest frame type that an edge which doesn't know it skips.
const firstOptional = 0x80

// BytesAsOne is how many bytes of a frame are decoded and copied in about the time of a short one.
const BytesAsOne = 1024

// Delivery is what frames ask for, whatever the protocol is that they came in. Bytes and messages
// are the caller's: what is kept of them is copied.
type Delivery interface {
	// Hello takes the body of a Hello, which is the first frame.
	Hello(c *state.Conn, body []byte)
	// Ack takes the body of an Ack. ok is false where it is malformed; done is false where the rest
	// of it is for another time: it is given again.
	Ack(c *state.Conn, body []byte) (done, ok bool)
	Nack(c *state.Conn, m *wirev1.Nack)
	Subscribe(c *state.Conn, m *wirev1.Subscribe)
	Unsubscribe(c *state.Conn, m *wirev1.Unsubscribe)
	Publish(c *state.Conn, m *wirev1.Publish)
	Claim(c *state.Conn, m *wirev1.Claim)
	Watch(c *state.Conn, m *wirev1.Watch)
	State(c *state.Conn, m *wirev1.State)
	Refresh(c *state.Conn, m *wirev1.RefreshToken)
	Ping(c *state.Conn, sentAt uint64, lastRTT uint32)
	Connection
}

// Connection is what a codec does to a connection itself.
type Connection interface {
	// Fail closes it with an Error of its own.
	Fail(c *state.Conn, why wirev1.Code, text string)
	// Refuse answers a request; one with the id 0 is counted alone.
	Refuse(c *state.Conn, id uint32, why *code.Error)
	// Holds reports whether reading waits.
	Holds(c *state.Conn) bool
	// Unfinished says that so many bytes of a frame have come, and not all; Finished that one has
	// come whole.
	Unfinished(c *state.Conn, n int)
	Finished(c *state.Conn)
	// TakeCost is what the walks for a frame count for, in short frames (walk.Cost).
	TakeCost() int
}

// Codec is used by one loop alone.
type Codec struct {
	Delivery Delivery
	Rules    *request.Rules
	MaxFrame int // bytes of a frame's body after Hello
	// Spent is how much of budgets Feed has used so far, in all.
	Spent uint64
}

// Feed handles the whole frames that b begins with, at most budget short ones or about as much, and
// says how many bytes they were. It stops early where the connection holds reading or closes; the
// caller keeps what was not used. more says that a whole frame may be left; a long Ack may be
// handled in part, and is given again then.
func (x *Codec) Feed(c *state.Conn, b []byte, budget int) (used int, more bool) {
	left := budget
	used, more = x.feed(c, b, &left)
	x.Spent += uint64(budget - left)
	return used, more
}

func (x *Codec) feed(c *state.Conn, b []byte, left *int) (used int, more bool) {
	for *left > 0 {
		switch {
		case c.Phase == state.Closing || c.Phase == state.Free:
			return len(b), false
		case x.Delivery.Holds(c):
			return used, true
		case c.Phase == state.Fresh && !x.detect(c, b[used:]):
			return used, false
		}
		n, t, ok := wire.Header(b[used:])
		if !ok {
			x.Delivery.Unfinished(c, len(b)-used)
			return used, false
		}
		if x.tooLarge(c, n) {
			return len(b), false
		}
		if len(b)-used < wire.HeaderSize+n {
			x.Delivery.Unfinished(c, len(b)-used)
			return used, false
		}
		body := b[used+wire.HeaderSize : used+wire.HeaderSize+n]
		done := x.frame(c, t, body)
		*left -= x.Delivery.TakeCost()
		if !done || c.Parked { // it is given again
			return used, true
		}
		used += wire.HeaderSize + n
		x.Delivery.Finished(c)
		*left -= 1 + n/BytesAsOne
	}
	return used, true
}

// tooLarge fails a connection with a frame that is longer than frames may be at this time.
func (x *Codec) tooLarge(c *state.Conn, n int) bool {
	switch {
	case c.Phase == state.Hello && n <= wire.MaxHello:
		return false
	case c.Phase == state.Hello:
		x.Delivery.Fail(c, wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("Hello is %d bytes long, %d at most", n, wire.MaxHello))
	case n > x.MaxFrame:
		x.Delivery.Fail(c, wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("a frame's body is %d bytes long, %d (max_frame) at most", n, x.MaxFrame))
	default:
		return false
	}
	return true
}

// detect looks at the first bytes of a connection; false where they are too few or not ours.
func (x *Codec) detect(c *state.Conn, b []byte) bool {
	p, more := wire.Detect(b)
	switch {
	case more:
		return false
	case p == wire.Push:
		c.Phase = state.Hello
		return true
	case p == wire.Unknown:
		x.Delivery.Fail(c, wirev1.Code_CODE_BAD_FRAME, "the first frame is Hello")
	default:
		x.Delivery.Fail(c, wirev1.Code_CODE_UNSUPPORTED, "this edge speaks the push protocol alone")
	}
	return false
}

// frame handles one frame; done is false where it must be given again.
func (x *Codec) frame(c *state.Conn, t wirev1.FrameType, body []byte) (done bool) {
	if c.Phase == state.Hello {
		x.Delivery.Hello(c, body) // detect saw that it is one
		return true
	}
	done, ok := true, true
	switch t {
	case wirev1.FrameType_FRAME_TYPE_ACK:
		done, ok = x.Delivery.Ack(c, body)
	case wirev1.FrameType_FRAME_TYPE_PING:
		ok = x.ping(c, body)
	case wirev1.FrameType_FRAME_TYPE_NACK:
		ok = decode(c, body, x.Delivery.Nack)
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
		ok = x.refuseMany(c, body, t) || decode(c, body, x.Delivery.Subscribe)
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE:
		ok = decode(c, body, x.Delivery.Unsubscribe)
	case wirev1.FrameType_FRAME_TYPE_PUBLISH:
		ok = x.refuseMany(c, body, t) || decode(c, body, x.Delivery.Publish)
	case wirev1.FrameType_FRAME_TYPE_CLAIM:
		ok = decode(c, body, x.Delivery.Claim)
	case wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN:
		ok = decode(c, body, x.Delivery.Refresh)
	case wirev1.FrameType_FRAME_TYPE_WATCH:
		ok = decode(c, body, x.Delivery.Watch)
	case wirev1.FrameType_FRAME_TYPE_STATE:
		ok = decode(c, body, x.Delivery.State)
	case wirev1.FrameType_FRAME_TYPE_PONG: // it came, and that is all that was asked for
	case wirev1.FrameType_FRAME_TYPE_HELLO:
		x.Delivery.Fail(c, wirev1.Code_CODE_BAD_FRAME, "a second Hello")
	default:
		if t < firstOptional {
			x.Delivery.Fail(c, wirev1.Code_CODE_UNKNOWN_FRAME, "the frame's type is not one that a client sends")
		}
	}
	if !ok {
		x.Delivery.Fail(c, wirev1.Code_CODE_BAD_FRAME, "a frame's body can't be decoded")
	}
	return done
}

// refuseMany refuses a Subscribe with more positions, or a Publish with more headers, than there
// may be, before any of them is decoded: a frame has room for hundreds of thousands.
func (x *Codec) refuseMany(c *state.Conn, body []byte, t wirev1.FrameType) bool {
	id, why := x.Rules.Many(t, body)
	switch {
	case why == nil:
		return false
	case id == 0 && t != wirev1.FrameType_FRAME_TYPE_PUBLISH: // whose id 0 asks for no answer
		x.Delivery.Fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
	default:
		x.Delivery.Refuse(c, id, why)
	}
	return true
}

// decode hands do the message of body; false where it is malformed.
func decode[M any, P interface {
	*M
	proto.Message
}](c *state.Conn, body []byte, do func(*state.Conn, P)) bool {
	m := P(new(M))
	if proto.Unmarshal(body, m) != nil {
		return false
	}
	do(c, m)
	return true
}

// ping decodes in place.
func (x *Codec) ping(c *state.Conn, body []byte) bool {
	sentAt, lastRTT, ok := frames.Ping(body)
	if ok {
		x.Delivery.Ping(c, sentAt, lastRTT)
	}
	return ok
}
