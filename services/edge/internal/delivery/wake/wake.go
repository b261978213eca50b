// Package wake has those of a connection go on that wait for a window or the queue, once one of
// those has opened: its tracks, and its members of groups.
package wake

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Slice is how many places are looked at in one go.
const Slice = 256

// Delivery is what a walk needs of the loop.
type Delivery interface {
	// GoesOn has the track or group at a place of a connection go on if it waited, and there is
	// room for it.
	GoesOn(c *state.Conn, at int) bool
}

// Queue holds the walks that are under way; no connection has two.
type Queue struct {
	delivery Delivery
	conns    *state.Conns
	walks    walk.FIFO[waking]
}

// New makes an empty queue.
func New(d Delivery, conns *state.Conns) Queue { return Queue{delivery: d, conns: conns} }

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

// Len is how many walks are under way.
func (q *Queue) Len() int { return q.walks.Len() }

// Wake has the waiting tracks of a connection looked at, once more where that is under way.
func (q *Queue) Wake(c *state.Conn) {
	switch {
	case c.Waking:
		c.Rewake = true
	case c.Waiting > 0:
		c.Waking = true
		q.walks.Push(waking{c: c})
	}
}

// Step goes on with the next walk, and reports how much it did, in units.
func (q *Queue) Step() int {
	w, ok := q.walks.Pop()
	if !ok {
		return 0
	}
	c := w.c
	if c.Phase == state.Free {
		c.Waking = false
		q.conns.Released(c)
		return 1
	}
	if !w.begun {
		c.Rewake = false
		w.begun, w.round = true, walk.RoundFrom(min(c.Turn, c.Places()))
	}
	looked, done := q.slice(&w)
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
func (q *Queue) slice(w *waking) (n int, done bool) {
	for ; n < Slice; n++ {
		at, ok := w.round.Next(w.c.Places())
		if !ok {
			return n, true
		}
		if q.delivery.GoesOn(w.c, int(at)) && !w.woken {
			w.woken = true
			q.setTurn(w.c, at)
		}
	}
	return n, false
}

// setTurn has the next walk begin behind a place. Who waits alone needs no turn.
func (q *Queue) setTurn(c *state.Conn, at uint32) {
	if c.Places() > 1 && c.Turn != at {
		q.conns.More(c).Turn = at
		q.conns.Less(c) // 0: nothing is kept for it
	}
}

// ClearTurn forgets whose turn it is where nobody waits and nothing is with the client.
func (q *Queue) ClearTurn(c *state.Conn) {
	if c.Turn != 0 && c.Waiting == 0 && c.Unacked == 0 {
		c.ConnMore.Turn = 0
		q.conns.Less(c)
	}
}
