package hub

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

type state uint8

const (
	stateFree    state = iota
	stateNew           // the first bytes have not come
	stateHello         // waiting for the rest of Hello
	stateWaiting       // Hello has come, its session is being attached
	stateOpen
	stateClosing // nothing is read any more; what is queued goes out, then the socket ends
)

// conn is one connection. The hub's slab owns it; its socket belongs to the loop.
type conn struct {
	slot, gen uint32
	state     state
	dirty     bool // in hub.dirty
	waking    bool // in hub.wakes
	draining  bool // GOAWAY was sent: no first delivery any more
	ended     bool // the socket is gone
	torn      bool // teardown is done
	detached  bool // holds its session no more

	id        uint64
	clientID  string
	heard     int64 // when bytes came last
	deadline  int64 // handshake, closing, drain; 0: none
	heartbeat uint32
	window    uint32
	unacked   uint32 // in the windows of all tracks
	timedOut  uint32 // left the window un-ACKed and still are
	waiting   uint32 // tracks that wait for a window or the queue
	nextRef   uint32
	stamp     uint32 // of the last ephemeral message queued for plain subscriptions
	counted   uint32 // hub.counting when it was counted last
	silent    uint32 // publishes with id 0 that are not answered

	subs   []*sub
	tracks []*track
	byTop  map[*topicState][]*track // of tracks, once there are many
	pubs   []uint32                 // ids of publishes that are not answered
	out    outbox
	sess   *session
}

const chunk = 256

// slab holds connections by slot; pointers stay good for the life of the process, handles until Free.
type slab struct {
	chunks []*[chunk]conn
	free   []uint32
}

func (s *slab) get(slot uint32) *conn {
	if int(slot/chunk) >= len(s.chunks) {
		return nil
	}
	return &s.chunks[slot/chunk][slot%chunk]
}

func (s *slab) len() uint32 { return uint32(len(s.chunks) * chunk) }

func (s *slab) take() *conn {
	if len(s.free) == 0 {
		base := s.len()
		s.chunks = append(s.chunks, new([chunk]conn))
		for i := uint32(chunk); i > 0; i-- {
			s.free = append(s.free, base+i-1)
		}
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	c := s.get(slot)
	*c = conn{slot: slot, gen: c.gen + 1}
	return c
}

// Open makes a connection of a socket that was accepted. At the bound it is closing already, and owes the reason.
func (h *Hub) Open() (slot, gen uint32) {
	c := h.slab.take()
	c.state, c.heard = stateNew, h.now
	c.deadline = h.now + int64(h.lim.HandshakeTimeout)
	h.wheel.Set(c.slot, c.deadline)
	h.stats.Connections++
	switch {
	case h.drain != nil:
		h.fail(c, wirev1.Code_CODE_DRAINING, "the edge is stopping")
	case h.stats.Connections > int64(h.lim.Connections):
		h.fail(c, wirev1.Code_CODE_TOO_MANY_CONNECTIONS, "the edge is full")
	}
	return c.slot, c.gen
}

// Gen is the present generation of a slot, for telling stale events.
func (h *Hub) Gen(slot uint32) uint32 {
	if c := h.slab.get(slot); c != nil {
		return c.gen
	}
	return 0
}

// fail owes the connection an Error about itself and closes it.
func (h *Hub) fail(c *conn, why wirev1.Code, text string) {
	if c.state == stateClosing || c.state == stateFree {
		return
	}
	h.dropQueue(c)
	h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: why, Message: text})
	h.close(c, why)
}

// refuse answers a request with an Error; the connection goes on.
func (h *Hub) refuse(c *conn, ref uint32, e *code.Error) {
	h.stats.Refused.add(e.Code, 1)
	h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{
		Code: e.Code, Message: e.Message, Ref: ref, RetryAfterMs: uint32(e.RetryAfter.Milliseconds()),
	})
}

// close begins the end: what is queued goes out, and the teardown begins.
func (h *Hub) close(c *conn, why wirev1.Code) {
	if c.state == stateClosing || c.state == stateFree {
		return
	}
	h.stats.Closes.add(why, 1)
	h.letGo(c)
	c.state = stateClosing
	c.deadline = h.now + int64(closeTimeout)
	h.wheel.Set(c.slot, c.deadline)
	h.markDirty(c)
	h.jobs.push(&teardown{c: c})
}

// Gone says that the socket ended or broke.
func (h *Hub) Gone(slot uint32) {
	c := h.slab.get(slot)
	h.close(c, wirev1.Code_CODE_OK)
	c.ended = true
	h.dropQueue(c)
	h.recycle(c)
}

// teardown takes a closing connection's subscriptions apart, a few at a time.
type teardown struct{ c *conn }

const teardownSlice = 32

func (j *teardown) step(h *Hub) bool {
	c := j.c
	for range teardownSlice {
		if n := len(c.tracks); n > 0 {
			h.dropTrack(c.tracks[n-1])
			continue
		}
		n := len(c.subs)
		if n == 0 {
			break
		}
		h.forgetSub(c.subs[n-1])
	}
	if len(c.tracks) > 0 || len(c.subs) > 0 {
		return false
	}
	c.torn = true
	h.recycle(c)
	return true
}

// recycle frees the slot once the socket has ended and nothing refers to the connection.
func (h *Hub) recycle(c *conn) {
	if !c.ended || !c.torn || c.state == stateFree {
		return
	}
	h.wheel.Clear(c.slot)
	h.freeQueue(c)
	h.stats.Connections--
	gen := c.gen
	waking, dirty := c.waking, c.dirty
	*c = conn{slot: c.slot, gen: gen, waking: waking, dirty: dirty}
	if !waking && !dirty {
		h.slab.free = append(h.slab.free, c.slot)
	}
}

// released gives back the slot of a connection that was freed while it stood in a list.
func (h *Hub) released(c *conn) {
	if c.state == stateFree && !c.waking && !c.dirty {
		h.slab.free = append(h.slab.free, c.slot)
	}
}

// Status of a connection, for the loop.
type Status struct {
	Gone    bool // the slot is free: the socket must have ended
	Hold    bool // read nothing for now; Resumed names the slot when that ends
	Closing bool // read and discard
	Owes    bool // has bytes to be sent
	Overdue bool // had its time for closing: end the socket at once
}

// Status of the slot.
func (h *Hub) Status(slot uint32) Status {
	c := h.slab.get(slot)
	return Status{
		Gone: c.state == stateFree, Hold: h.holds(c), Closing: c.state == stateClosing, Owes: c.out.n > 0,
		Overdue: c.state == stateClosing && h.now >= c.deadline,
	}
}

// holds says whether reading waits: for Welcome, or because the client does not take its answers.
func (h *Hub) holds(c *conn) bool {
	return c.state == stateWaiting || c.state != stateClosing && c.out.control > maxControl
}

func (h *Hub) markDirty(c *conn) {
	if !c.dirty {
		c.dirty = true
		h.dirty = append(h.dirty, c.slot)
	}
}

// Dirty takes the slots that have something to flush or to end.
func (h *Hub) Dirty(dst []uint32) []uint32 {
	for _, slot := range h.dirty {
		c := h.slab.get(slot)
		c.dirty = false
		if c.state == stateFree {
			h.released(c)
			continue
		}
		dst = append(dst, slot)
	}
	h.dirty = h.dirty[:0]
	return dst
}

// Resumed takes the slots that may read again.
func (h *Hub) Resumed(dst []uint32) []uint32 {
	dst = append(dst, h.resumed...)
	h.resumed = h.resumed[:0]
	return dst
}

// Handle of a slot, for tests and logs.
func (h *Hub) Handle(slot uint32) exchange.Conn { return h.handle(h.slab.get(slot)) }
