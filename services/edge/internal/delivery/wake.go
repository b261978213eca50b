package delivery

import (
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
// So a walk begins behind the one that the walk before it woke first (connMore.turn): everyone is
// the first in its turn.
//
// Places are counted over the tracks and the groups behind them, and are gone over in a round that
// begins at c.turn. Whoever changes the places of others meanwhile has the walk repeated.
type waking struct {
	c     *conn
	begun bool
	woken bool // somebody was
	round walk.Round
}

// wakeSlice is how many places are looked at in one go.
const wakeSlice = 256

// wake has the waiting tracks of a connection looked at, once more where that is under way.
func (q *waker) wake(c *conn) {
	switch {
	case c.waking:
		c.rewake = true
	case c.waiting > 0:
		c.waking = true
		q.walks.Push(waking{c: c})
	}
}

// displaced notes that tracks or groups of a connection have other places.
func (c *conn) displaced() {
	if c.waking {
		c.rewake = true
	}
}

// slice goes on with the next walk, and reports how much it did.
func (q *waker) slice() int {
	w, ok := q.walks.Pop()
	if !ok {
		return 0
	}
	c := w.c
	if c.state == stateFree {
		c.waking = false
		q.hub.conns.released(c)
		return 1
	}
	if !w.begun {
		c.rewake = false
		w.begun, w.round = true, walk.RoundFrom(min(c.turn, c.places()))
	}
	looked, done := w.slice(q.hub)
	switch {
	case !done:
		q.walks.Push(w)
	case c.rewake && c.waiting > 0:
		q.walks.Push(waking{c: c})
	default:
		c.waking = false
	}
	return 1 + looked/8
}

func (c *conn) places() uint32 { return uint32(c.tracks.Len() + len(c.groups)) }

// slice looks at some places, and reports how many that were, and whether these were the last.
func (w *waking) slice(h *Hub) (n int, done bool) {
	for ; n < wakeSlice; n++ {
		at, ok := w.round.Next(w.c.places())
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
func (q *waker) goesOn(c *conn, at int) bool {
	if at >= c.tracks.Len() {
		return q.hub.groups.goesOn(c.groups[at-c.tracks.Len()])
	}
	t := c.tracks.At(at)
	switch {
	case !t.waits:
		return false
	case t.latest != nil:
		q.hub.replay.notWaiting(t)
		q.hub.gaps.tryLatest(t) // which tends to what it stands still behind
		return true
	}
	room := q.hub.replay.roomToRead(t)
	if room.Some && (room.Enough || t.waited()) {
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
func (q *waker) setTurn(c *conn, at uint32) {
	if c.places() > 1 && c.turn != at {
		q.hub.conns.more(c).turn = at
		q.hub.conns.less(c) // 0: nothing is kept for it
	}
}

// clearTurn forgets whose turn it is where nobody waits and nothing is with the client.
func (q *waker) clearTurn(c *conn) {
	if c.turn != 0 && c.waiting == 0 && c.unacked == 0 {
		c.connMore.turn = 0
		q.hub.conns.less(c)
	}
}

// runner is a track that is behind, or a group with messages that wait, in line to go on.
type runner struct {
	t trackRef
	g *member
}

// turnOf is how many messages one of several tracks and groups of a connection may hand on before
// the others have their turn.
func (r *replayer) turnOf(c *conn, ack bool) int {
	if c.places() == 1 {
		return replaySlice
	}
	room := r.hub.lim.QueueMessages / 8
	if ack {
		room = min(room, int(c.window))
	}
	return replay.Turn(room)
}
