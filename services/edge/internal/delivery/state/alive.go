package state

import (
	"math"
	"time"
)

// Pings says how a silent client is asked for a sign of life.
type Pings uint8

// The ways.
const (
	NoPings       Pings = iota
	PingsOfLoop         // by what its protocol has for it, which the loop speaks
	PingsOfFrames       // by frames, as Hello asked for
)

// Asked is set beside the way once a client was asked, until it is heard again.
const Asked Pings = 0x80

// SignOfLife asks a client for one that was silent for half of what it may, if it is one to be
// asked, and says when to look again. Timers of pages that nobody looks at fire once a minute:
// their own heartbeats come too late. byFrame: the caller sends the Ping; else Silent names the
// slot.
func (s *Conns) SignOfLife(c *Conn, now int64, ms uint32) (next int64, byFrame bool) {
	way := c.Pings &^ Asked
	if way == NoPings {
		return math.MaxInt64, false
	}
	if at := c.askAt(now, ms); now < at {
		return at, false
	}
	if c.Pings |= Asked; way == PingsOfLoop {
		s.Silent = append(s.Silent, c.Slot)
	}
	return now + c.Patience()/2, way == PingsOfFrames
}

// askAt is when a client that is asked for a sign of life will have been silent for half of its
// patience.
func (c *Conn) askAt(now int64, ms uint32) int64 {
	if c.Pings&Asked != 0 || c.Parked {
		return now + c.Patience()
	}
	return now - int64(ms-c.Heard)*int64(time.Millisecond) + c.Patience()/2
}

// HeardAt says that bytes have come, whole frames or not, at a time as Hub.ms.
func (c *Conn) HeardAt(ms uint32) {
	c.Heard = ms
	c.Pings &^= Asked
}

// TakeSilent appends the slots that the loop is to ask for a sign of life, once.
func (s *Conns) TakeSilent(dst []uint32) []uint32 {
	dst = append(dst, s.Silent...)
	s.Silent = s.Silent[:0]
	return dst
}
