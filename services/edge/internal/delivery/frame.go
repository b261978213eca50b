package delivery

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
)

// firstOptional is the lowest frame type that an edge which doesn't know it skips.
const firstOptional = 0x80

// Heard says that bytes have come, whole frames or not.
func (h *Hub) Heard(slot uint32) { h.conns.Get(slot).Heard = h.ms }

// Frames is how many were handled.
func (h *Hub) Frames() uint64 { return h.stats.Frames }

// bytesAsOne is how many bytes of a frame are decoded and copied in about the time of a short one.
const bytesAsOne = 1024

// Feed handles the whole frames that b begins with, at most budget short ones or about as much, and
// says how many bytes they were. It stops early where the connection holds reading or closes; the
// caller keeps what was not used. more says that a whole frame may be left; a long Ack may be
// handled in part, and is given again then.
func (h *Hub) Feed(slot uint32, b []byte, budget int) (used int, more bool) {
	c := h.conns.Get(slot)
	for budget > 0 {
		switch {
		case c.Phase == state.Closing || c.Phase == state.Free:
			return len(b), false
		case h.holds(c):
			return used, true
		case c.Phase == state.Fresh && !h.detect(c, b[used:]):
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
		budget -= h.takeCost()
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
func (h *Hub) tooLarge(c *state.Conn, n int) bool {
	switch {
	case c.Phase == state.Hello && n > wire.MaxHello:
		h.fail(c, wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("Hello is %d bytes long, 4,096 at most", n))
	case n > h.lim.MaxFrame:
		h.fail(c, wirev1.Code_CODE_FRAME_TOO_LARGE, fmt.Sprintf("a frame's body is %d bytes long, %d (max_frame) at most", n, h.lim.MaxFrame))
	default:
		return false
	}
	return true
}

// detect looks at the first bytes of a connection; false where they are too few or not ours.
func (h *Hub) detect(c *state.Conn, b []byte) bool {
	p, more := wire.Detect(b)
	switch {
	case more:
		return false
	case p == wire.Push:
		c.Phase = state.Hello
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
func (h *Hub) frame(c *state.Conn, t wirev1.FrameType, body []byte) (done bool) {
	if c.Phase == state.Hello {
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
func (h *Hub) refuseMany(c *state.Conn, body []byte, t wirev1.FrameType) bool {
	id, why := h.rules.Many(t, body)
	switch {
	case why == nil:
		return false
	case id == 0 && t == wirev1.FrameType_FRAME_TYPE_PUBLISH:
		h.stats.Refused.Add(why.Code, 1) // no answer is wanted
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
func (h *Hub) unsupported(c *state.Conn, id uint32, what string) {
	if id == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	h.refuse(c, id, code.New(wirev1.Code_CODE_UNSUPPORTED, what+" are not supported"))
}

// ping answers with what was sent, decoded and encoded in place: but for the arena, of which one is
// made for some hundred Pongs, nothing is allocated.
func (h *Hub) ping(c *state.Conn, body []byte) bool {
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

// A frame that has begun must come to its end in time: one that drips in holds memory, and bytes
// alone break the silence. Hello has the handshake's time.

// unfinished notes that so many bytes of a frame have come, and not all.
func (h *Hub) unfinished(c *state.Conn, n int) {
	if n == 0 || c.Begun != 0 || c.Phase != state.Open {
		return
	}
	h.conns.More(c).Begun = h.now
	h.wheel.Sooner(c.Slot, h.now+int64(h.lim.FrameTimeout))
}

// finished notes that a frame has come whole.
func (h *Hub) finished(c *state.Conn) {
	if c.Begun != 0 {
		h.conns.More(c).Begun = 0
		h.conns.Less(c)
	}
}

// RecordBegun says that a part of a TLS record has come: it has the time that a frame has, from the
// first part of either.
func (h *Hub) RecordBegun(slot uint32) { h.unfinished(h.conns.Get(slot), 1) }

// RecordWhole says that a record has come whole, and no part of a frame is left.
func (h *Hub) RecordWhole(slot uint32) { h.finished(h.conns.Get(slot)) }

// Unread says that the loop does not read the connection for a while: that time is not the
// client's.
func (h *Hub) Unread(slot uint32) {
	c := h.conns.Get(slot)
	c.Heard = h.ms
	if c.Begun != 0 {
		h.conns.More(c).Begun = h.now
	}
}

// Unlimited says that the connection is a backend's, which rates of clients are not for.
func (h *Hub) Unlimited(slot uint32) bool { return h.conns.Get(slot).Backend }

// dripping does what is due about a frame that has begun, and says when something is next.
func (h *Hub) dripping(c *state.Conn, next int64) int64 {
	if c.Begun == 0 {
		return next
	}
	if h.holds(c) {
		h.conns.More(c).Begun = h.now
	}
	due := c.Begun + int64(h.lim.FrameTimeout)
	if h.now >= due {
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "a frame, or a TLS record, that has begun did not come whole in time")
	}
	return min(next, due)
}

// publish hands a client's message on. One with id 0 is never answered; a refusal of it is counted
// alone.
func (h *Hub) publish(c *state.Conn, m *wirev1.Publish) {
	if why := h.rules.Publish(c.Asking(m.GetId()), m); why != nil {
		if m.GetId() == 0 {
			h.stats.Refused.Add(why.Code, 1)
			return
		}
		h.refuse(c, m.GetId(), why)
		return
	}
	if m.GetId() == 0 {
		c.Silent++
	} else {
		more := h.conns.More(c)
		more.Publishes = append(more.Publishes, m.GetId())
	}
	h.mesh.Publish(h.handle(c), m.GetId(), &meshv1.ClientPublish_Item{
		Topic: m.GetTopic(), Payload: bytes.Clone(m.GetPayload()), Headers: m.GetHeaders(), DedupeKey: m.GetDedupeKey(), ClientId: strings.Clone(c.ClientID),
	})
}

func (h *Hub) published(c *state.Conn, e exchange.Published) {
	if e.ID == 0 {
		c.Silent -= min(c.Silent, 1)
		return
	}
	i := slices.Index(c.Publishes, e.ID)
	if i < 0 {
		h.stats.StaleEvents++
		return
	}
	more := h.conns.More(c)
	if more.Publishes = slices.Delete(more.Publishes, i, i+1); len(more.Publishes) == 0 {
		more.Publishes = nil
		h.conns.Less(c)
	}
	r := e.Result
	if r.GetCode() != wirev1.Code_CODE_OK {
		h.stats.Refused.Add(r.GetCode(), 1)
		h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{
			Code: r.GetCode(), Message: r.GetError(), Ref: e.ID, RetryAfterMs: r.GetRetryAfterMs(),
		})
		return
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{
		Id: e.ID, Seq: r.GetSeq(), MessageId: r.GetMessageId(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch(),
	})
}

// claim hands a request on to the stores.
func (h *Hub) claim(c *state.Conn, m *wirev1.Claim) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.rules.Claim(c.Asking(m.GetId()), c.Claims, m); why != nil {
		h.rooms.claims.Stats().Count(m.GetOp(), why.Code)
		h.refuse(c, m.GetId(), why)
		return
	}
	h.conns.More(c).Claims = h.rooms.claims.Ask(c.Claims, h.handle(c), h.connID(c), c.User(), m)
}

// endClaims is for a connection that closes.
func (h *Hub) endClaims(c *state.Conn) {
	if c.Claims != nil {
		h.rooms.claims.End(c.Claims)
		h.conns.More(c).Claims = nil
	}
}
