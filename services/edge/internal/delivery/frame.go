package delivery

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// Heard says that bytes have come, whole frames or not.
func (h *Hub) Heard(slot uint32) { h.conns.Get(slot).HeardAt(h.ms) }

// Frames is how many were handled.
func (h *Hub) Frames() uint64 { return h.stats.Frames }

// Feed is native.Codec's.
func (h *Hub) Feed(slot uint32, b []byte, budget int) (used int, more bool) {
	return h.native.Feed(h.conns.Get(slot), b, budget)
}

// Spent is how much of budgets Feed has used so far: frames, their bytes, and the work that they
// caused.
func (h *Hub) Spent() uint64 { return h.native.Spent }

// operations are what frames ask for, as a codec sees them: native.Delivery.
type operations struct{ h *Hub }

func (o operations) Hello(c *state.Conn, body []byte)                 { o.h.hello(c, body) }
func (o operations) Ack(c *state.Conn, body []byte) (done, ok bool)   { return o.h.acks.frame(c, body) }
func (o operations) Nack(c *state.Conn, m *wirev1.Nack)               { o.h.acks.nack(c, m) }
func (o operations) Subscribe(c *state.Conn, m *wirev1.Subscribe)     { o.h.subscribe(c, m) }
func (o operations) Unsubscribe(c *state.Conn, m *wirev1.Unsubscribe) { o.h.unsubscribe(c, m) }
func (o operations) Publish(c *state.Conn, m *wirev1.Publish)         { o.h.publish(c, m) }
func (o operations) Claim(c *state.Conn, m *wirev1.Claim)             { o.h.claim(c, m) }
func (o operations) Watch(c *state.Conn, m *wirev1.Watch)             { o.h.rooms.members.Watch(o.h.handle(c), m) }

func (o operations) State(c *state.Conn, m *wirev1.State) { o.h.rooms.members.Say(o.h.handle(c), m) }

func (o operations) Refresh(c *state.Conn, m *wirev1.RefreshToken) {
	o.h.rooms.principals.Refresh(o.h.handle(c), m)
}

func (o operations) Ping(c *state.Conn, sentAt uint64, lastRTT uint32) { o.h.ping(c, sentAt, lastRTT) }
func (o operations) Fail(c *state.Conn, why wirev1.Code, text string)  { o.h.fail(c, why, text) }
func (o operations) Holds(c *state.Conn) bool                          { return c.Holds(maxAnswers) }
func (o operations) Unfinished(c *state.Conn, n int)                   { o.h.unfinished(c, n) }
func (o operations) Finished(c *state.Conn)                            { o.h.finished(c) }
func (o operations) TakeCost() int                                     { return o.h.takeCost() }
func (o operations) Refuse(c *state.Conn, id uint32, why *code.Error)  { o.h.refuse(c, id, why) }

// ping answers with what was sent, encoded in place: but for the arena, of which one is made for
// some hundred Pongs, nothing is allocated.
func (h *Hub) ping(c *state.Conn, sentAt uint64, lastRTT uint32) {
	var body [frames.MaxPong]byte
	it := sendq.AnswerOf(h.queues.ShortFrame(wirev1.FrameType_FRAME_TYPE_PONG, frames.AppendPong(body[:0], sentAt)))
	h.push(c, &it)
	h.waker.ClearTurn(c)
	h.heartbeat(c, lastRTT)
}

// unfinished notes that so many bytes of a frame have come, and not all. The rest must come in
// time: one that drips in holds memory. Hello has the handshake's time.
func (h *Hub) unfinished(c *state.Conn, n int) {
	if n == 0 || c.Begun != 0 || c.Phase != state.Open {
		return
	}
	h.conns.More(c).Begun = h.now
	h.wheel.Sooner(c.Slot, h.now+int64(h.lim.FrameTimeout))
}

// finished notes that a frame has come whole.
func (h *Hub) finished(c *state.Conn) {
	h.stats.Frames++
	h.conns.Whole(c)
}

// RecordBegun says that a part of a TLS record has come: it has the time that a frame has, from the
// first part of either.
func (h *Hub) RecordBegun(slot uint32) { h.unfinished(h.conns.Get(slot), 1) }

// RecordWhole says that a record has come whole, and no part of a frame is left.
func (h *Hub) RecordWhole(slot uint32) { h.conns.Whole(h.conns.Get(slot)) }

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
	if c.Holds(maxAnswers) {
		h.conns.More(c).Begun = h.now
	}
	due := c.Begun + int64(h.lim.FrameTimeout)
	if h.now >= due {
		h.fail(c, wirev1.Code_CODE_IDLE_TIMEOUT, "a frame, or a TLS record, that has begun did not come whole in time")
	}
	return min(next, due)
}

// What a frame counts for beside the one unit that each has (BenchmarkFrames): a Publish, a
// Subscribe and an Unsubscribe take about two microseconds, and each header of a Publish half of
// one.
const (
	requestUnits   = 1
	headersPerUnit = 2
)

// publish hands a client's message on. One with id 0 is never answered; a refusal of it is counted
// alone.
func (h *Hub) publish(c *state.Conn, m *wirev1.Publish) {
	h.addCost((requestUnits + len(m.GetHeaders())/headersPerUnit) * itemsPerUnit)
	why, size := h.rules.Publish(h.asking(c, m.GetId()), m), request.PublishBytes(m)
	if why == nil && !h.kept.Fits(c.Slot, size) {
		why = request.NoMemory
	}
	if why != nil {
		h.refuse(c, m.GetId(), why)
		return
	}
	from := h.conns.AddPublish(c, m.GetId(), size, h.origin)
	h.kept.Charge(c.Slot, size)
	h.mesh.Publish(h.handle(c), from, m.GetId(), &meshv1.ClientPublish_Item{
		Topic: m.GetTopic(), Payload: bytes.Clone(m.GetPayload()), Headers: m.GetHeaders(), DedupeKey: m.GetDedupeKey(), ClientId: strings.Clone(c.ClientID), User: h.rooms.principals.Name(c.Slot),
	})
}

// published takes a router's answer.
func (h *Hub) published(c *state.Conn, e exchange.Published) {
	size, found := h.conns.TakePublish(c, e.ID)
	if h.noteStale(found); !found {
		return
	}
	h.kept.Charge(c.Slot, -size)
	if e.ID == 0 {
		return
	}
	if answer, why := request.Published(e.ID, e.Result); why != nil {
		h.refuse(c, e.ID, why)
	} else {
		h.control(c, wirev1.FrameType_FRAME_TYPE_PUBLISHED, answer)
	}
}

// claim hands a request on to the stores.
func (h *Hub) claim(c *state.Conn, m *wirev1.Claim) {
	if m.GetId() == 0 {
		h.fail(c, wirev1.Code_CODE_INVALID_ARGUMENT, "ids start at 1")
		return
	}
	why := h.rules.Claim(h.asking(c, m.GetId()), c.Claims, m)
	if adds := claims.Adds(m); why == nil && adds > 0 && !h.kept.Fits(c.Slot, adds) {
		why = request.NoMemory
	}
	if why != nil {
		if why != request.Parked {
			h.rooms.claims.Stats().Count(m.GetOp(), why.Code)
		}
		h.refuse(c, m.GetId(), why)
		return
	}
	h.rooms.permissions.Hold(h.handle(c), 0)
	h.conns.More(c).Claims = h.rooms.claims.Ask(c.Claims, h.handle(c), h.connID(c), cmp.Or(h.rooms.principals.Owner(c.Slot, c.ClientID), c.User()), m)
}

// endClaims is for a connection that closes.
func (h *Hub) endClaims(c *state.Conn) {
	if c.Claims != nil {
		h.rooms.claims.End(c.Claims)
		h.conns.More(c).Claims = nil
	}
}
