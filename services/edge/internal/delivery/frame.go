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
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
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

// A frame that has begun must come to its end in time: one that drips in holds memory, and bytes
// alone break the silence. Hello has the handshake's time.

// unfinished notes that so many bytes of a frame have come, and not all.
func (h *Hub) unfinished(c *conn, n int) {
	if n == 0 || c.begun != 0 || c.state != stateOpen {
		return
	}
	h.conns.more(c).begun = h.now
	h.wheel.Sooner(c.slot, h.now+int64(h.lim.FrameTimeout))
}

// finished notes that a frame has come whole.
func (h *Hub) finished(c *conn) {
	if c.begun != 0 {
		h.conns.more(c).begun = 0
		h.conns.less(c)
	}
}

// Unread says that the loop does not read the connection for a while: that time is not the
// client's.
func (h *Hub) Unread(slot uint32) {
	c := h.conns.get(slot)
	c.heard = h.ms
	if c.begun != 0 {
		h.conns.more(c).begun = h.now
	}
}

// Unlimited says that the connection is a backend's, which rates of clients are not for.
func (h *Hub) Unlimited(slot uint32) bool { return h.conns.get(slot).backend }

// dripping does what is due about a frame that has begun, and says when something is next.
func (h *Hub) dripping(c *conn, next int64) int64 {
	if c.begun == 0 {
		return next
	}
	if h.holds(c) {
		h.conns.more(c).begun = h.now
	}
	due := c.begun + int64(h.lim.FrameTimeout)
	if h.now >= due {
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "a frame that has begun did not come whole in time")
	}
	return min(next, due)
}

// publish hands a client's message on. One with id 0 is never answered; a refusal of it is counted
// alone.
func (h *Hub) publish(c *conn, m *wirev1.Publish) {
	if why := h.rules.Publish(c.asking(m.GetId()), m); why != nil {
		if m.GetId() == 0 {
			h.stats.Refused.add(why.Code, 1)
			return
		}
		h.refuse(c, m.GetId(), why)
		return
	}
	if m.GetId() == 0 {
		c.silent++
	} else {
		more := h.conns.more(c)
		more.pubs = append(more.pubs, m.GetId())
	}
	h.mesh.Publish(h.handle(c), m.GetId(), &meshv1.ClientPublish_Item{
		Topic: m.GetTopic(), Payload: bytes.Clone(m.GetPayload()), Headers: m.GetHeaders(), DedupeKey: m.GetDedupeKey(), ClientId: strings.Clone(c.clientID),
	})
}

func (h *Hub) published(c *conn, e exchange.Published) {
	if e.ID == 0 {
		c.silent -= min(c.silent, 1)
		return
	}
	i := slices.Index(c.pubs, e.ID)
	if i < 0 {
		h.stats.StaleEvents++
		return
	}
	more := h.conns.more(c)
	if more.pubs = slices.Delete(more.pubs, i, i+1); len(more.pubs) == 0 {
		more.pubs = nil
		h.conns.less(c)
	}
	r := e.Result
	if r.GetCode() != wirev1.Code_CODE_OK {
		h.stats.Refused.add(r.GetCode(), 1)
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
func (h *Hub) claim(c *conn, m *wirev1.Claim) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	if why := h.rules.Claim(c.asking(m.GetId()), c.claims, m); why != nil {
		h.rooms.claims.Stats().Count(m.GetOp(), why.Code)
		h.refuse(c, m.GetId(), why)
		return
	}
	h.conns.more(c).claims = h.rooms.claims.Ask(c.claims, h.handle(c), h.connID(c), c.user(), m)
}

// endClaims is for a connection that closes.
func (h *Hub) endClaims(c *conn) {
	if c.claims != nil {
		h.rooms.claims.End(c.claims)
		h.conns.more(c).claims = nil
	}
}
