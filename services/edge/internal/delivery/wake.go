package delivery

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// waker looks at the tracks and groups of connections that wait for a window or the queue, once one
// of those has opened.
type waker struct {
	hub   *Hub
	walks walk.FIFO[waking]
}

// waking is a walk over the tracks and groups of a connection for those that waited for a window or
// the queue. All of them go on, in turns; but where there is room for few, who comes first has it.
// So a walk begins behind the one that the walk before it woke first (ConnMore.Turn): everyone is
// the first in its turn.
//
// Places are counted over the tracks and the groups behind them, and are gone over in a round that
// begins at c.Turn. Whoever changes the places of others meanwhile has the walk repeated.
type waking struct {
	c     *state.Conn
	begun bool
	woken bool // somebody was
	round walk.Round
}

// wakeSlice is how many places are looked at in one go.
const wakeSlice = 256

// wake has the waiting tracks of a connection looked at, once more where that is under way.
func (q *waker) wake(c *state.Conn) {
	switch {
	case c.Waking:
		c.Rewake = true
	case c.Waiting > 0:
		c.Waking = true
		q.walks.Push(waking{c: c})
	}
}

// slice goes on with the next walk, and reports how much it did.
func (q *waker) slice() int {
	w, ok := q.walks.Pop()
	if !ok {
		return 0
	}
	c := w.c
	if c.Phase == state.Free {
		c.Waking = false
		q.hub.conns.Released(c)
		return 1
	}
	if !w.begun {
		c.Rewake = false
		w.begun, w.round = true, walk.RoundFrom(min(c.Turn, c.Places()))
	}
	looked, done := w.slice(q.hub)
	switch {
	case !done:
		q.walks.Push(w)
	case c.Rewake && c.Waiting > 0:
		q.walks.Push(waking{c: c})
	default:
		c.Waking = false
	}
	return 1 + looked/8
}

// slice looks at some places, and reports how many that were, and whether these were the last.
func (w *waking) slice(h *Hub) (n int, done bool) {
	for ; n < wakeSlice; n++ {
		at, ok := w.round.Next(w.c.Places())
		if !ok {
			return n, true
		}
		if h.waker.goesOn(w.c, int(at)) && !w.woken {
			w.woken = true
			h.waker.setTurn(w.c, at)
		}
	}
	return n, false
}

// goesOn has the track or group at a place go on if it waited, and there is room for it.
func (q *waker) goesOn(c *state.Conn, at int) bool {
	if at >= c.Tracks.Len() {
		return q.hub.groups.goesOn(c.Groups[at-c.Tracks.Len()])
	}
	t := c.Tracks.At(at)
	switch {
	case !t.Waits:
		return false
	case t.Latest != nil:
		q.hub.replay.notWaiting(t)
		q.hub.gaps.tryLatest(t) // which tends to what it stands still behind
		return true
	}
	room := q.hub.replay.roomToRead(t)
	if room.Some && (room.Enough || t.Waited()) {
		q.hub.replay.notWaiting(t)
		q.hub.replay.enqueue(t)
		return true
	}
	if room.Some {
		q.hub.replay.readFewSoon(t)
	} else {
		q.hub.replay.tendFirst(t)
	}
	return false
}

// setTurn has the next walk begin behind a place. Who waits alone needs no turn.
func (q *waker) setTurn(c *state.Conn, at uint32) {
	if c.Places() > 1 && c.Turn != at {
		q.hub.conns.More(c).Turn = at
		q.hub.conns.Less(c) // 0: nothing is kept for it
	}
}

// clearTurn forgets whose turn it is where nobody waits and nothing is with the client.
func (q *waker) clearTurn(c *state.Conn) {
	if c.Turn != 0 && c.Waiting == 0 && c.Unacked == 0 {
		c.ConnMore.Turn = 0
		q.hub.conns.Less(c)
	}
}

// runner is a track that is behind, or a group with messages that wait, in line to go on.
type runner struct {
	t state.TrackRef
	g *state.Member
}

// turnOf is how many messages one of several tracks and groups of a connection may hand on before
// the others have their turn.
func (r *replayer) turnOf(c *state.Conn, ack bool) int {
	if c.Places() == 1 {
		return replaySlice
	}
	room := r.hub.lim.QueueMessages / 8
	if ack {
		room = min(room, int(c.Window))
	}
	return replay.Turn(room)
}
