package delivery

import (
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sessions"
)

// sessionKeeper keeps the positions of durable sessions stored, for the connections that hold them.
type sessionKeeper struct{ hub *Hub }

// session is the durable session that a connection holds, and its tracks.
type session struct {
	sessions.Session
	changed []trackRef // whose cursors are to be saved
	// leaving: the connection has let go, and its last positions are being handed in; lookedAt
	// counts the tracks that were looked at for them, lastRef is the ref of the Save that ends the
	// hold.
	leaving  bool
	lookedAt int
	stamp    uint32 // of the last ephemeral message queued for its subscriptions that have no track
	lastRef  uint32
}

// detachRef is the ref of the last Save of a connection that is drained.
const detachRef = ^uint32(0)

func (z *sessionKeeper) cursorChanged(t *track) {
	if t.cur == nil { // it is not a session's
		return
	}
	if s := t.c.sess; !t.changed {
		t.changed = true
		s.changed = append(s.changed, t.ref())
	}
	z.saveSoon(t.c)
}

func (z *sessionKeeper) saveSoon(c *conn) {
	if at, first := c.sess.SaveSoon(z.hub.now); first {
		z.hub.wheel.Sooner(c.slot, at)
	}
}

// save hands in what has changed.
func (z *sessionKeeper) save(c *conn) {
	s := c.sess
	s.BeginSave()
	if c.detached || len(s.changed) == 0 && !s.HasLetters() {
		return
	}
	z.hub.mesh.Save(z.hub.handle(c), 0, z.collect(s, saveSlice), false)
	if len(s.changed) > 0 {
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
func (z *sessionKeeper) collect(s *session, most int) *meshv1.SessionWrite {
	w := s.Write()
	s.TakeLetters(w)
	most = min(most, len(s.changed))
	for i, r := range s.changed[:most] {
		if z.hub.cost.Items >= collectLooks {
			most = i
			break
		}
		t := r.get()
		if t == nil {
			continue
		}
		if t.changed {
			t.changed = false
		}
		w.Cursors = append(w.Cursors, z.encodeCursor(t))
	}
	s.changed = slices.Delete(s.changed, 0, most)
	return w
}

// encodeCursor takes the attempts of what is un-ACKed now into account.
func (z *sessionKeeper) encodeCursor(t *track) *meshv1.SessionCursor {
	out := t.cur.Encode(strings.Clone(t.topic.name))
	z.hub.addCost(len(out.GetAcked()) + len(out.GetAttempts()))
	if t.win == nil {
		return out
	}
	z.hub.addCost(len(t.win.Live()))
	t.win.AddAttempts(out)
	return out
}

// letGo ends the hold: nothing is saved as it changes any more, and the teardown hands in the last
// positions before it takes tracks apart. ref is that of the last Save.
func (z *sessionKeeper) letGo(c *conn, ref uint32) {
	if s := c.sess; s != nil && !c.detached {
		c.detached = true
		s.leaving, s.lastRef = true, ref
	}
}

// handIn hands in some of the last positions; the Save with the rest of them ends the hold. No
// track of the connection goes before that.
func (z *sessionKeeper) handIn(c *conn) {
	s := c.sess
	end := min(s.lookedAt+lookSlice, c.tracks.Len())
	for ; s.lookedAt < end; s.lookedAt++ {
		t := c.tracks.At(s.lookedAt)
		if t.kind == kindSession && t.cur != nil && t.unacked > 0 && !t.changed {
			t.changed = true
			s.changed = append(s.changed, t.ref())
		}
	}
	w := z.collect(s, saveSlice)
	if len(s.changed) == 0 && s.lookedAt == c.tracks.Len() {
		s.leaving, w.Detach = false, true
		z.hub.mesh.Save(z.hub.handle(c), s.lastRef, w, true)
	} else if len(w.Cursors) > 0 || len(w.DeadLetters) > 0 {
		z.hub.mesh.Save(z.hub.handle(c), 0, w, false)
	}
}

// attached goes on with Hello once the session is held.
func (z *sessionKeeper) attached(c *conn, e exchange.Attached) {
	if c.state != stateWaiting {
		z.hub.stats.StaleEvents++
		return
	}
	if e.Err != nil {
		c.detached = true // nothing is held
		z.hub.failErr(c, e.Err)
		return
	}
	s := c.sess
	s.Attach(&e)
	z.hub.welcome(c, s.Conn, e.Resumed)
	z.hub.conns.resumed = append(z.hub.conns.resumed, c.slot)
}

// resumeTrack gives a track of the session its place in a topic that appeared later.
func (z *sessionKeeper) resumeTrack(t *track, epoch uint64) {
	more := z.hub.tracks.more(t)
	cur, size := t.c.sess.Take(t.topic.name)
	more.cur = cur
	z.hub.addCost(size)
	if t.cur == nil || t.cur.Epoch != epoch {
		more.cur = &cursor.Cursor{Epoch: epoch}
		z.cursorChanged(t)
	}
	z.hub.learnEpoch(t, epoch)
	t.pos = t.cur.Floor
}

// giveUp makes a message a dead letter of the session, which settles it. Without a session it is
// let go.
func (z *sessionKeeper) giveUp(t *track, m *exchange.Message, attempts uint32, why wirev1.Code) {
	if t.cur == nil {
		return
	}
	z.hub.stats.DeadLetters++
	z.hub.addCost(len(m.Body()) / bytesAsOne * itemsPerUnit)
	t.c.sess.GiveUp(m, attempts, why, z.hub.wall)
	t.cur.Settle(m.Seq, m.Seq)
	z.cursorChanged(t)
}

// saved goes on with a subscription whose first position is stored.
func (z *sessionKeeper) saved(e exchange.Saved) {
	if e.Ref == detachRef {
		z.hub.rooms.departure.Saved()
		return
	}
	z.hub.forConn(e.Conn, func(c *conn) {
		if c.sess == nil || !c.sess.Stored(e.Ref) {
			z.hub.stats.StaleEvents++
			return
		}
		s := c.subByRef(e.Ref)
		if s == nil || s.dead {
			return
		}
		if e.Err != nil {
			z.hub.refuseSub(s, e.Err)
			return
		}
		z.hub.starter.openSub(s)
	})
}

func (z *sessionKeeper) detached(c *conn, why error) {
	c.detached = true
	if why != nil {
		z.hub.failErr(c, why)
		return
	}
	z.hub.fail(c, wirev1.Code_CODE_SESSION_TAKEN_OVER, "another connection has the session")
}

func (z *sessionKeeper) yield(c *conn) {
	z.hub.fail(c, wirev1.Code_CODE_SESSION_TAKEN_OVER, "another connection has the session")
}
