package delivery

import (
	"math"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
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

// conn is one connection. The hub's slab owns it, where the collector does not look: strings are
// the hub's Texts, and what it points to lies in slabs and pools of the hub. Its socket belongs to
// the loop.
type conn struct {
	slot, gen uint32
	heartbeat uint32
	window    uint32
	unacked   uint32 // in the windows of all tracks
	timedOut  uint32 // left the window un-ACKed and still are
	waiting   uint32 // tracks that wait for a window or the queue
	nextRef   uint32
	stamp     uint32 // of the last ephemeral message queued for plain subscriptions
	counted   uint32 // hub.counts.serial when it was counted last
	since     uint32 // Hello, Unix time in seconds
	heard     uint32 // when bytes came last, as Hub.ms
	link      linkhealth.Link
	silent    uint16 // publishes with id 0 that are not answered
	state     state
	dirty     bool // in hub.conns.dirty
	waking    bool // in waker.walks
	rewake    bool // once more, when it was looked at
	draining  bool // GOAWAY was sent: no first delivery any more
	ended     bool // the socket is gone
	torn      bool // teardown is done
	detached  bool // holds its session no more
	visited   bool // its tracks are being looked at for what is due
	backend   bool // a router's, for a backend

	clientID string
	deadline int64 // handshake, closing, drain; 0: none

	subs   slab.List[sub]
	tracks slab.List[track]
	out    sendq.Queue
	*connMore
}

// connMore is what few connections have at a time. It is written through conns.more alone: without
// any it is noConnMore.
type connMore struct {
	byID   map[uint32]*sub          // of subscriptions, once there are many
	byRef  map[uint32]*sub          // the same
	byTop  map[*topicState][]*track // of tracks, once there are many
	pubs   []uint32                 // ids of publishes that are not answered
	sess   *session
	groups []*member
	claims *claims.Held // nil: it claims nothing
	// What its messages are ranked for; nil: nothing is known.
	profile *exchange.Profile
	// An Ack in hand goes on at ackAt of its body, with the entry ackSerial where that is not 0.
	ackAt, ackSerial uint32
	turn             uint32 // the next walk over those that wait begins behind this place
	// when the first bytes came of a frame that has not come whole; 0: there is none
	begun int64

	sealed uint32 // bytes that have left the queue, and wait in ciphertext
	secure bool   // the client has TLS
	hungUp bool   // before it was welcomed: nobody waits for the answer to its Hello
}

var noConnMore = slab.None[connMore]()

// conns holds connections by slot; pointers stay good for the life of the hub, handles until the
// slot is freed.
type conns struct {
	slab    slab.Slab[conn]
	mores   slab.Pool[connMore]
	free    []uint32
	resumed []uint32 // may read again
	dirty   []uint32 // have something to flush or to end
	closed  []uint32 // only the socket is left of them
}

func (s *conns) get(slot uint32) *conn {
	if int(slot) >= s.slab.Len() {
		return nil
	}
	return s.slab.At(int(slot))
}

func (s *conns) len() uint32 { return uint32(s.slab.Len()) }

func (s *conns) take() *conn {
	var c *conn
	if n := len(s.free); n > 0 {
		c = s.get(s.free[n-1])
		s.free = s.free[:n-1]
	} else {
		c = s.slab.Take()
		c.slot = s.len() - 1
	}
	c.reset()
	c.gen = max(c.gen, 1)
	return c
}

// reset leaves the slot and its generation.
func (c *conn) reset() {
	*c = conn{slot: c.slot, gen: c.gen, waking: c.waking, dirty: c.dirty, out: sendq.Empty, connMore: noConnMore}
}

// more is the connection's connMore, to be written to.
func (s *conns) more(c *conn) *connMore {
	if c.connMore == noConnMore {
		c.connMore = s.mores.Take()
	}
	return c.connMore
}

// less gives connMore back where nothing is in it.
func (s *conns) less(c *conn) {
	m := c.connMore
	if m != noConnMore && m.byID == nil && m.byTop == nil && m.pubs == nil && m.sess == nil && m.groups == nil && m.claims == nil && m.profile == nil && m.ackAt == 0 && m.ackSerial == 0 && m.turn == 0 && m.begun == 0 &&
		m.sealed == 0 && !m.secure && !m.hungUp {
		s.mores.Give(m)
		c.connMore = noConnMore
	}
}

// Open makes a connection of a socket that was accepted. Where the edge is stopping it is closing
// already, and the reason is queued.
func (h *Hub) Open() (slot, gen uint32) {
	c := h.conns.take()
	c.state, c.heard = stateNew, h.ms
	c.deadline = h.now + int64(h.lim.HandshakeTimeout)
	h.wheel.Set(c.slot, c.deadline)
	h.stats.Connections++
	if h.rooms.departure.Stopping() {
		h.rooms.departure.TurnAway(c.slot)
	}
	return c.slot, c.gen
}

// Refuse closes a connection for a reason of the loop's.
func (h *Hub) Refuse(slot uint32, why *code.Error) { h.failErr(h.conns.get(slot), why) }

// CutOff counts a connection that was closed without a word, and never opened.
func (h *Hub) CutOff(why wirev1.Code) { h.stats.Closes.add(why, 1) }

// Gen is the present generation of a slot, for telling stale events.
func (h *Hub) Gen(slot uint32) uint32 {
	if c := h.conns.get(slot); c != nil {
		return c.gen
	}
	return 0
}

// fail queues an Error about the connection itself and closes it.
func (h *Hub) fail(c *conn, why wirev1.Code, text string) { h.failErr(c, code.New(why, text)) }

// failErr closes the connection with the reason of err.
func (h *Hub) failErr(c *conn, err error) {
	if c.state == stateClosing || c.state == stateFree {
		return
	}
	e := code.From(err)
	c.out.KeepAnswers()
	h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{
		Code: e.Code, Message: e.Message, RetryAfterMs: uint32(e.RetryAfter.Milliseconds()),
	})
	h.close(c, e.Code, e.Message)
}

// refuse answers a request with an Error; the connection goes on.
func (h *Hub) refuse(c *conn, ref uint32, e *code.Error) {
	h.stats.Refused.add(e.Code, 1)
	h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{
		Code: e.Code, Message: e.Message, Ref: ref, RetryAfterMs: uint32(e.RetryAfter.Milliseconds()),
	})
}

// close begins the end: what is queued goes out, and the teardown begins.
func (h *Hub) close(c *conn, why wirev1.Code, reason string) {
	if c.state == stateClosing || c.state == stateFree {
		return
	}
	h.stats.Closes.add(why, 1)
	if c.state == stateOpen {
		h.rooms.report.Disconnected(h.handle(c), why, reason)
	}
	h.sessions.letGo(c, 0)
	h.endClaims(c)
	if c.state == stateOpen {
		h.rooms.presence.Ended(h.handle(c))
	}
	c.state = stateClosing
	c.deadline = h.now + int64(closeTimeout)
	h.wheel.Set(c.slot, c.deadline)
	h.conns.markDirty(c)
	h.jobs.Push(&teardown{c: c})
}

// Gone says that the socket ended or broke. It stays open until Over names the slot.
func (h *Hub) Gone(slot uint32) {
	c := h.conns.get(slot)
	h.close(c, wirev1.Code_CODE_OK, "")
	c.ended = true
	c.out.Resume()
	if c.torn && c.out.Len() > 0 {
		c.torn = false
		h.jobs.Push(&teardown{c: c})
	}
	h.recycle(c)
}

// teardown drops the queue of a connection whose socket has ended, hands in what its session has
// not saved, then takes its subscriptions apart, a few at a time.
type teardown struct{ c *conn }

const teardownSlice = 32

func (j *teardown) step(h *Hub) bool {
	c := j.c
	if c.ended && c.out.Len() > 0 {
		c.out.DropAll(fanSlice)
		return false
	}
	if c.sess != nil && c.sess.leaving {
		h.sessions.handIn(c)
		return false
	}
	if n := len(c.groups); n > 0 {
		h.groups.leave(c.groups[n-1])
		return false
	}
	for n := 0; n < teardownSlice; n += 1 + h.takeCost() {
		if n := c.tracks.Len(); n > 0 {
			h.tracks.drop(c.tracks.At(n - 1))
			continue
		}
		n := c.subs.Len()
		if n == 0 {
			break
		}
		h.forgetSub(c.subs.At(n - 1))
	}
	if c.tracks.Len() > 0 || c.subs.Len() > 0 {
		return false
	}
	c.torn = true
	h.recycle(c)
	return true
}

// recycle lets the loop end a connection's socket, once that has broken or said goodbye and no
// topic refers to the connection.
func (h *Hub) recycle(c *conn) {
	if !c.ended || !c.torn || c.state == stateFree {
		return
	}
	h.wheel.Clear(c.slot)
	h.links.Book().Forget(&c.link)
	c.out.DropAll(math.MaxInt) // what was queued since
	h.texts.Drop(c.clientID)
	c.clientID = ""
	if c.connMore != noConnMore {
		h.conns.mores.Give(c.connMore)
		c.connMore = noConnMore
	}
	h.conns.closed = append(h.conns.closed, c.slot)
}

// Over takes up to n slots whose connections no topic and no timer knows any more: their sockets
// are to be closed, then Free called.
func (h *Hub) Over(dst []uint32, n int) []uint32 {
	n = min(n, len(h.conns.closed))
	dst = append(dst, h.conns.closed[:n]...)
	h.conns.closed = h.conns.closed[:copy(h.conns.closed, h.conns.closed[n:])]
	return dst
}

// Free ends a slot that Over named. Its generation is the last thing to go: whatever still names
// the connection is stale from here on.
func (h *Hub) Free(slot uint32) {
	c := h.conns.get(slot)
	h.stats.Connections--
	c.reset()
	c.gen = max(c.gen+1, 1)
	h.conns.released(c)
}

// released gives back the slot of a connection that was freed while it stood in a list.
func (s *conns) released(c *conn) {
	if c.state == stateFree && !c.waking && !c.dirty {
		s.free = append(s.free, c.slot)
	}
}

// Status of a connection, for the loop.
type Status struct {
	Gone    bool // the slot is free: the socket must have ended
	Hold    bool // read nothing for now; Resumed names the slot when that ends
	Closing bool // read and discard
	Owes    bool // has bytes to be sent
	Overdue bool // had its time for closing: end the socket at once
	Early   bool // not welcomed yet
}

// Status of the slot.
func (h *Hub) Status(slot uint32) Status {
	c := h.conns.get(slot)
	return Status{
		Gone: c.state == stateFree, Hold: h.holds(c), Closing: c.state == stateClosing, Owes: c.out.Len() > 0,
		Overdue: c.state == stateClosing && h.now >= c.deadline, Early: c.state < stateOpen,
	}
}

// HungUp says that the client ended its side behind what is fed next: one that is not welcomed yet
// has left.
func (h *Hub) HungUp(slot uint32) { h.conns.more(h.conns.get(slot)).hungUp = true }

// holds reports whether reading waits: for Welcome, or because the client does not take its
// answers.
func (h *Hub) holds(c *conn) bool {
	return c.state == stateWaiting || c.state != stateClosing && c.out.Answers() > maxAnswers
}

func (s *conns) markDirty(c *conn) {
	if !c.dirty {
		c.dirty = true
		s.dirty = append(s.dirty, c.slot)
	}
}

// Dirty takes the slots that have something to flush or to end.
func (h *Hub) Dirty(dst []uint32) []uint32 {
	for _, slot := range h.conns.dirty {
		c := h.conns.get(slot)
		c.dirty = false
		if c.state == stateFree {
			h.conns.released(c)
			continue
		}
		dst = append(dst, slot)
	}
	h.conns.dirty = h.conns.dirty[:0]
	return dst
}

// Resumed takes the slots that may read again.
func (h *Hub) Resumed(dst []uint32) []uint32 {
	dst = append(dst, h.conns.resumed...)
	h.conns.resumed = h.conns.resumed[:0]
	return dst
}

// Handle of a slot, for tests and logs.
func (h *Hub) Handle(slot uint32) exchange.Conn { return h.handle(h.conns.get(slot)) }

// Secured says that the connection has TLS, and that hands are shaken.
func (h *Hub) Secured(slot uint32) { h.conns.more(h.conns.get(slot)).secure = true }

// Sealed says how many bytes of ciphertext wait for the connection's socket. They count as queued:
// the frames in them have left the queue.
func (h *Hub) Sealed(slot uint32, n int) {
	c := h.conns.get(slot)
	less := n < int(c.sealed)
	h.queues.AddBytes(n - int(c.sealed))
	if n > 0 || c.sealed > 0 {
		h.conns.more(c).sealed = uint32(n)
		h.conns.less(c)
	}
	if less {
		h.wakeDrained(c)
	}
}

// Cut closes a connection that can't be told why: nothing can be read of it any more, nor sealed
// for it.
func (h *Hub) Cut(slot uint32, why wirev1.Code, text string) { h.close(h.conns.get(slot), why, text) }

// askToGo sends GOAWAY to an open connection: from here on it gets no first delivery, and is closed
// once it has ACKed what it was sent, at until at the latest. One that was asked before is closed
// at until if that is sooner.
func (h *Hub) askToGo(c *conn, m *wirev1.GoAway, until int64) {
	if c.draining {
		c.deadline = min(c.deadline, until)
		return
	}
	c.draining = true
	if len(c.groups) > 0 {
		h.jobs.Push(&pausing{c: c, gen: c.gen, remaining: len(c.groups)})
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, m)
	c.deadline = until
	h.wheel.Set(c.slot, h.now+int64(Tick))
}

// turnAway closes a connection with GOAWAY alone.
func (h *Hub) turnAway(c *conn, m *wirev1.GoAway) {
	c.out.KeepAnswers()
	h.control(c, wirev1.FrameType_FRAME_TYPE_GO_AWAY, m)
	h.close(c, wirev1.Code_CODE_DRAINING, m.GetReason())
}

// pausing tells the dispatchers of a connection's groups that it takes nothing more, one after the
// other.
type pausing struct {
	c         *conn
	gen       uint32
	remaining int
}

func (j *pausing) step(h *Hub) bool {
	if j.remaining = min(j.remaining, len(j.c.groups)); j.c.gen != j.gen || j.c.state != stateOpen || j.remaining == 0 {
		return true
	}
	j.remaining--
	h.groups.pause(j.c.groups[j.remaining])
	return false
}

// goes closes a connection that was asked to go once nothing is queued for it, un-ACKed or
// unanswered.
func (h *Hub) goes(c *conn) {
	if h.now < c.deadline && (c.unacked > 0 || c.out.Len() > 0 || c.claims.Waits()) {
		h.wheel.Sooner(c.slot, h.now+int64(Tick))
		return
	}
	if h.rooms.departure.Stopping() && c.sess != nil && !c.detached {
		h.rooms.departure.Saving()
		h.sessions.letGo(c, detachRef)
	}
	h.close(c, wirev1.Code_CODE_DRAINING, h.rooms.departure.Reason())
}

// Draining reports whether no connection is accepted any more.
func (h *Hub) Draining() bool { return h.rooms.departure.Stopping() }

// Drained reports whether the planned stop has come to its end, once; the loop asks every turn.
func (h *Hub) Drained() bool { return h.rooms.departure.Ended() }
