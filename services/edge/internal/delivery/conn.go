package delivery

import (
	"cmp"
	"math"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// Open makes a connection of a socket that was accepted. Where the edge is stopping it is closing
// already, and the reason is queued.
func (h *Hub) Open() (slot, gen uint32) {
	c := h.conns.Take()
	h.kept.Open(c.Slot)
	c.Phase, c.Heard = state.Fresh, h.ms
	c.Deadline = h.now + int64(h.lim.HandshakeTimeout)
	h.wheel.Set(c.Slot, c.Deadline)
	h.stats.Connections++
	if h.rooms.departure.Stopping() {
		h.rooms.departure.TurnAway(c.Slot)
	}
	return c.Slot, c.Gen
}

// Refuse closes a connection for a reason of the loop's.
func (h *Hub) Refuse(slot uint32, why *code.Error) { h.failErr(h.conns.Get(slot), why) }

// CutOff counts a connection that was closed without a word, and never opened.
func (h *Hub) CutOff(why wirev1.Code) { h.stats.Closes.Add(why, 1) }

// clientOf names the user of a connection, or the client that it says it is; "": it gave no name.
// It is good until the connection ends.
func (h *Hub) clientOf(slot uint32) string {
	return cmp.Or(h.rooms.principals.User(slot), h.conns.Get(slot).ClientID)
}

// Gen is the present generation of a slot, for telling stale events.
func (h *Hub) Gen(slot uint32) uint32 { return h.conns.Generation(slot) }

// fail queues an Error about the connection itself and closes it.
func (h *Hub) fail(c *state.Conn, why wirev1.Code, text string) { h.failErr(c, code.New(why, text)) }

// failErr closes the connection with the reason of err.
func (h *Hub) failErr(c *state.Conn, err error) {
	if c.Phase == state.Closing || c.Phase == state.Free {
		return
	}
	e := code.From(err)
	c.Out.KeepAnswers()
	h.rooms.report.Refused(h.handle(c), "connection", e)
	h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, request.Error(0, e))
	h.close(c, e.Code, e.Message)
}

// refuse answers a request with an Error; the connection goes on. A request with id 0 is answered
// by nothing, and counted alone.
func (h *Hub) refuse(c *state.Conn, ref uint32, e *code.Error) {
	if e == request.Parked {
		return // it is given again
	}
	h.rooms.report.Refused(h.handle(c), "request", e)
	if h.stats.Refused.Add(e.Code, 1); ref == 0 {
		return
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, request.Error(ref, e))
}

// close begins the end: what is queued goes out, and the teardown begins.
func (h *Hub) close(c *state.Conn, why wirev1.Code, reason string) {
	if c.Phase == state.Closing || c.Phase == state.Free {
		return
	}
	h.stats.Closes.Add(why, 1)
	c.Why = uint8(why)
	if c.Phase == state.Open {
		h.rooms.report.Disconnected(h.handle(c), why, reason)
	}
	h.sessions.letGo(c, 0)
	h.endClaims(c)
	h.rooms.members.Close(c.Slot)
	h.kept.Charge(c.Slot, -h.conns.EndPublishes(c))
	if c.Phase == state.Open {
		h.rooms.presence.Ended(h.handle(c))
	}
	c.Phase = state.Closing
	c.Deadline = h.now + int64(closeTimeout)
	h.wheel.Set(c.Slot, c.Deadline)
	h.conns.MarkDirty(c)
	h.jobs.Push(&teardown{c: c})
}

// Gone says that the socket ended or broke. It stays open until Over names the slot.
func (h *Hub) Gone(slot uint32) {
	c := h.conns.Get(slot)
	h.close(c, wirev1.Code_CODE_OK, "")
	c.Ended = true
	c.Out.Resume()
	if c.Torn && c.Out.Len() > 0 {
		c.Torn = false
		h.jobs.Push(&teardown{c: c})
	}
	h.recycle(c)
}

// teardown drops the queue of a connection whose socket has ended, hands in what its session has
// not saved, then takes its subscriptions apart, a few at a time.
type teardown struct{ c *state.Conn }

const teardownSlice = 32

func (j *teardown) step(h *Hub) bool {
	c := j.c
	if c.Ended && c.Out.Len() > 0 {
		c.Out.DropAll(fanSlice)
		return false
	}
	if c.Session != nil && c.Session.Leaving {
		h.sessions.handIn(c)
		return false
	}
	if n := len(c.Groups); n > 0 {
		h.groups.leave(c.Groups[n-1])
		return false
	}
	for n := 0; n < teardownSlice; n += 1 + h.takeCost() {
		if n := c.Tracks.Len(); n > 0 {
			h.dropTrack(c.Tracks.At(n - 1))
			continue
		}
		n := c.Subs.Len()
		if n == 0 {
			break
		}
		h.forgetSub(c.Subs.At(n - 1))
	}
	if c.Tracks.Len() > 0 || c.Subs.Len() > 0 {
		return false
	}
	c.Torn = true
	h.recycle(c)
	return true
}

// recycle lets the loop end a connection's socket, once that has broken or said goodbye and no
// topic refers to the connection.
func (h *Hub) recycle(c *state.Conn) {
	if !c.Ended || !c.Torn || c.Phase == state.Free {
		return
	}
	h.wheel.Clear(c.Slot)
	h.links.Book().Forget(&c.Link)
	c.Out.DropAll(math.MaxInt) // what was queued since
	if c.Session != nil {
		h.kept.Charge(c.Slot, -c.Session.Kept)
	}
	h.rooms.permissions.Gone(c.Slot)
	h.rooms.principals.Gone(c.Slot)
	h.texts.Drop(c.ClientID)
	c.ClientID = ""
	h.conns.DropMore(c)
	h.conns.Closed = append(h.conns.Closed, c.Slot)
}

// Over takes up to n slots whose connections no topic and no timer knows any more: their sockets
// are to be closed, then Free called.
func (h *Hub) Over(dst []uint32, n int) []uint32 { return h.conns.TakeClosed(dst, n) }

// Free ends a slot that Over named. Its generation is the last thing to go: whatever still names
// the connection is stale from here on.
func (h *Hub) Free(slot uint32) {
	c := h.conns.Get(slot)
	h.stats.Connections--
	h.conns.Free(c)
}

// Status of the slot.
func (h *Hub) Status(slot uint32) state.Status { return h.conns.Get(slot).Status(h.now, maxAnswers) }

// Upgraded notes what a connection has shown before its Hello, and that the loop asks it for signs
// of life, by its protocol.
func (h *Hub) Upgraded(slot uint32, b principals.Brought) {
	h.conns.Get(slot).Pings = state.PingsOfLoop
	h.rooms.principals.Brought(slot, b)
}

// Silent takes the slots that the loop is to ask for a sign of life.
func (h *Hub) Silent(dst []uint32) []uint32 { return h.conns.TakeSilent(dst) }

// HungUp says that the client ended its side behind what is fed next; it may have left.
func (h *Hub) HungUp(slot uint32) { h.conns.More(h.conns.Get(slot)).HungUp = true }

// Dirty takes the slots that have something to flush or to end.
func (h *Hub) Dirty(dst []uint32) []uint32 { return h.conns.TakeDirty(dst) }

// Resumed takes the slots that may read again.
func (h *Hub) Resumed(dst []uint32) []uint32 { return h.conns.TakeResumed(dst) }

// Handle of a slot, for tests and logs.
func (h *Hub) Handle(slot uint32) exchange.Conn { return h.handle(h.conns.Get(slot)) }

// Secured says that the connection has TLS, and that hands are shaken.
func (h *Hub) Secured(slot uint32, by exchange.Security) { h.conns.More(h.conns.Get(slot)).Secure = by }

// Outside says how many bytes wait for the connection's socket that the loop has made of frames:
// ciphertext, messages of WebSocket. They count as queued: the frames in them have left the queue.
func (h *Hub) Outside(slot uint32, n int) {
	c := h.conns.Get(slot)
	less := n < int(c.Outside)
	c.Out.SetBeside(h.queues, slot, n)
	if n > 0 || c.Outside > 0 {
		h.conns.More(c).Outside = uint32(n)
		h.conns.Less(c)
	}
	if less {
		h.wakeDrained(c)
	}
}

// Why a connection is closing.
func (h *Hub) Why(slot uint32) wirev1.Code { return wirev1.Code(h.conns.Get(slot).Why) }

// Cut closes a connection that can't be told why: nothing can be read of it any more, nor sealed
// for it.
func (h *Hub) Cut(slot uint32, why wirev1.Code, text string) { h.close(h.conns.Get(slot), why, text) }

// pausing tells the dispatchers of a connection's groups that it takes nothing more, one after the
// other.
type pausing struct {
	c         *state.Conn
	gen       uint32
	remaining int
}

func (j *pausing) step(h *Hub) bool {
	if j.remaining = min(j.remaining, len(j.c.Groups)); j.c.Gen != j.gen || j.c.Phase != state.Open || j.remaining == 0 {
		return true
	}
	j.remaining--
	h.groups.pause(j.c.Groups[j.remaining])
	return false
}

// goes closes a connection that was asked to go once nothing is queued for it, un-ACKed or
// unanswered.
func (h *Hub) goes(c *state.Conn) {
	if h.now < c.Deadline && (c.Unacked > 0 || c.Out.Len() > 0 || c.Outside > 0 || c.Claims.Waits() || c.Parked) {
		h.wheel.Sooner(c.Slot, h.now+int64(Tick))
		return
	}
	if h.rooms.departure.Stopping() && c.Session != nil && !c.Detached {
		h.rooms.departure.Saving()
		h.sessions.letGo(c, detachRef)
	}
	h.close(c, wirev1.Code_CODE_DRAINING, h.rooms.departure.Reason())
}

// Draining reports whether no connection is accepted any more.
func (h *Hub) Draining() bool { return h.rooms.departure.Stopping() }

// Drained reports whether the planned stop has come to its end, once; the loop asks every turn.
func (h *Hub) Drained() bool { return h.rooms.departure.Ended() }
