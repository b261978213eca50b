package delivery

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
)

// GoesOn implements wake.Delivery.
func (p port) GoesOn(c *state.Conn, at int) bool {
	if at >= c.Tracks.Len() {
		return p.h.groups.goesOn(c.Groups[at-c.Tracks.Len()])
	}
	t := c.Tracks.At(at)
	switch {
	case !t.Waits:
		return false
	case t.Latest != nil:
		p.h.replay.notWaiting(t)
		p.h.gaps.tryLatest(t) // which tends to what it stands still behind
		return true
	}
	room := p.h.replay.roomToRead(t)
	if room.Some && (room.Enough || t.Waited()) {
		p.h.replay.notWaiting(t)
		p.h.replay.enqueue(t)
		return true
	}
	if room.Some {
		p.h.replay.readFewSoon(t)
	} else {
		p.h.replay.tendFirst(t)
	}
	return false
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
