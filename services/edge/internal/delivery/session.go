package delivery

import (
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/native"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// sessionKeeper keeps the positions of durable sessions stored, for the connections that hold them.
type sessionKeeper struct{ hub *Hub }

// detachRef is the ref of the last Save of a connection that is drained.
const detachRef = ^uint32(0)

func (z *sessionKeeper) cursorChanged(t *state.Track) {
	if t.Cursor == nil { // it is not a session's
		return
	}
	if s := t.Conn.Session; !t.Changed {
		t.Changed = true
		s.Changed = append(s.Changed, t.Ref())
	}
	z.saveSoon(t.Conn)
}

func (z *sessionKeeper) saveSoon(c *state.Conn) {
	if at, first := c.Session.SaveSoon(z.hub.now); first {
		z.hub.wheel.Sooner(c.Slot, at)
	}
}

// save hands in what has changed.
func (z *sessionKeeper) save(c *state.Conn) {
	s := c.Session
	s.BeginSave()
	if c.Detached || len(s.Changed) == 0 && !s.HasLetters() {
		return
	}
	z.hub.mesh.Save(z.hub.handle(c), 0, z.collect(s, saveSlice), false)
	if len(s.Changed) > 0 {
		z.saveSoon(c)
	}
}

// saveSlice is how many cursors are handed in at a time, as long as there are not more than
// collectLooks in them; lookSlice is how many tracks are looked at for some that must be.
const (
	saveSlice    = 128
	lookSlice    = 256
	collectLooks = 256 * itemsPerUnit
)

// collect makes a write of what has changed, at most so many cursors.
func (z *sessionKeeper) collect(s *state.Session, most int) *meshv1.SessionWrite {
	w := s.Write()
	s.TakeLetters(w)
	most = min(most, len(s.Changed))
	for i, r := range s.Changed[:most] {
		if z.hub.cost.Items >= collectLooks {
			most = i
			break
		}
		t := r.Get()
		if t == nil {
			continue
		}
		if t.Changed {
			t.Changed = false
		}
		w.Cursors = append(w.Cursors, z.encodeCursor(t))
	}
	s.Changed = slices.Delete(s.Changed, 0, most)
	return w
}

// encodeCursor takes the attempts of what is un-ACKed now into account.
func (z *sessionKeeper) encodeCursor(t *state.Track) *meshv1.SessionCursor {
	out := t.Cursor.Encode(strings.Clone(t.Topic.Name()))
	z.hub.addCost(len(out.GetAcked()) + len(out.GetAttempts()))
	if t.Win == nil {
		return out
	}
	z.hub.addCost(len(t.Win.Live()))
	t.Win.AddAttempts(out)
	return out
}

// letGo ends the hold: nothing is saved as it changes any more, and the teardown hands in the last
// positions before it takes tracks apart. ref is that of the last Save.
func (z *sessionKeeper) letGo(c *state.Conn, ref uint32) {
	if s := c.Session; s != nil && !c.Detached {
		c.Detached = true
		s.Leaving, s.LastRef = true, ref
	}
}

// handIn hands in some of the last positions; the Save with the rest of them ends the hold. No
// track of the connection goes before that.
func (z *sessionKeeper) handIn(c *state.Conn) {
	s := c.Session
	end := min(s.LookedAt+lookSlice, c.Tracks.Len())
	for ; s.LookedAt < end; s.LookedAt++ {
		t := c.Tracks.At(s.LookedAt)
		if t.Kind == state.KindSession && t.Cursor != nil && t.Unacked > 0 && !t.Changed {
			t.Changed = true
			s.Changed = append(s.Changed, t.Ref())
		}
	}
	w := z.collect(s, saveSlice)
	if len(s.Changed) == 0 && s.LookedAt == c.Tracks.Len() {
		s.Leaving, w.Detach = false, true
		z.hub.mesh.Save(z.hub.handle(c), s.LastRef, w, true)
	} else if len(w.Cursors) > 0 || len(w.DeadLetters) > 0 {
		z.hub.mesh.Save(z.hub.handle(c), 0, w, false)
	}
}

// attached goes on with Hello once the session is held.
func (z *sessionKeeper) attached(c *state.Conn, e exchange.Attached) {
	if c.Phase != state.Waiting {
		z.hub.stats.StaleEvents++
		return
	}
	if e.Err != nil {
		c.Detached = true // nothing is held
		z.hub.failErr(c, e.Err)
		return
	}
	s := c.Session
	s.Attach(&e)
	// as long as no subscription of the session takes the charge over, with what it begins with
	s.Kept = s.Bytes()
	z.hub.kept.Charge(c.Slot, s.Kept)
	z.hub.welcome(c, s.Conn, e.Resumed)
	z.hub.conns.Resumed = append(z.hub.conns.Resumed, c.Slot)
}

// resumeTrack gives a track of the session its place in a topic that appeared later.
func (z *sessionKeeper) resumeTrack(t *state.Track, epoch uint64) {
	more := z.hub.tracks.More(t)
	cur, size := t.Conn.Session.Take(t.Topic.Name())
	more.Cursor = cur
	z.hub.addCost(size)
	if t.Cursor == nil || t.Cursor.Epoch != epoch {
		more.Cursor = &cursor.Cursor{Epoch: epoch}
		z.cursorChanged(t)
	}
	z.hub.learnEpoch(t, epoch)
	t.Pos = t.Cursor.Floor
}

// What waits to become a dead letter is looked at again after exhaustLater to twice that, in
// nanoseconds, spread over so many times.
const (
	exhaustLater  = int64(time.Second)
	exhaustSpread = 64
)

// mayExhaust reports whether one more message of the session may become a dead letter for want of
// an ACK now, and counts it. Where it may not, the message waits in the window, or is sent again.
func (z *sessionKeeper) mayExhaust(t *state.Track) bool {
	if l := &z.hub.lim.DeadLetters; !l.Any() || t.Conn.Session.MayExhaust(z.hub.now, l) {
		return true
	}
	z.hub.stats.DeadLettersDelayed++
	return false
}

// giveUp makes a message a dead letter of the session, which settles it. Without a session it is
// let go.
func (z *sessionKeeper) giveUp(t *state.Track, m *exchange.Message, attempts uint32, why wirev1.Code) {
	if t.Cursor == nil {
		return
	}
	z.hub.stats.DeadLetters++
	z.hub.addCost(len(m.Body()) / native.BytesAsOne * itemsPerUnit)
	t.Conn.Session.GiveUp(m, attempts, why, z.hub.wall)
	t.Cursor.Settle(m.Seq, m.Seq)
	z.cursorChanged(t)
}

// saved goes on with a subscription whose first position is stored.
func (z *sessionKeeper) saved(e exchange.Saved) {
	if e.Ref == detachRef {
		z.hub.rooms.departure.Saved()
		return
	}
	z.hub.forConn(e.Conn, func(c *state.Conn) {
		if c.Session == nil || !c.Session.Stored(e.Ref) {
			z.hub.stats.StaleEvents++
			return
		}
		s := c.SubByRef(e.Ref)
		if s == nil || s.Dead {
			return
		}
		if e.Err != nil {
			z.hub.refuseSub(s, e.Err)
			return
		}
		z.hub.starter.openSub(s)
	})
}

func (z *sessionKeeper) detached(c *state.Conn, why error) {
	if c.Detached = true; why != nil {
		z.hub.failErr(c, why)
	}
	z.yield(c)
}

func (z *sessionKeeper) yield(c *state.Conn) { // nothing, where it is closed already
	z.hub.fail(c, wirev1.Code_CODE_SESSION_TAKEN_OVER, "another connection has the session")
}
