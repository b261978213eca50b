package replay

import "time"

// Pace is how many messages all who are behind get together in a millisecond, so that what is live,
// and the cores that clients need, have the rest. The zero value has no limit.
type Pace struct {
	Most int   // messages in a millisecond; 0: no limit
	in   int64 // the millisecond
	done int   // messages in it
}

// Exhausted reports whether they have had theirs, until the millisecond after now, in nanoseconds.
func (p *Pace) Exhausted(now int64) bool {
	if p.Most <= 0 {
		return false
	}
	if in := now / int64(time.Millisecond); in != p.in {
		p.in, p.done = in, 0
	}
	return p.done >= p.Most
}

// Spend notes that messages were handed on.
func (p *Pace) Spend(n int) { p.done += n }

// Room is what room there is for messages that are read from the log: Some is enough for one,
// Enough for reading on to be worth it.
type Room struct{ Some, Enough bool }

// In is the room that is there in a window of so many messages, too: half of it is enough.
func (r Room) In(window, unacked uint32) Room {
	free := window - min(window, unacked)
	return Room{Some: r.Some && free > 0, Enough: r.Enough && free >= max(1, window/2)}
}

// ReadCost is what a read of a log counts for, in messages, for a connection with so many
// positions: the edge, NATS and a store work about 35 µs for one, whatever it brings. Who has few
// positions asks for few reads.
func ReadCost(positions int) int {
	if positions <= usual {
		return 16
	}
	return 64
}

const (
	// Slice is how many messages one who is behind gets at most before others have their turn.
	Slice = 64
	// turns is in how many turns a window or the queue's part for those who are behind is given
	// out, where several may want some of it.
	turns = 8
)

// Turn is how many messages one of several who share room for so many may hand on before the others
// have their turn.
func Turn(room int) int { return min(max(room/turns, 1), Slice) }
