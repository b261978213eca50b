package linkhealth

import (
	"sync/atomic"
	"time"
)

// Reason not to close an unhealthy connection.
type Reason uint8

// Reasons.
const (
	None     Reason = iota
	Reported        // the mode says so
	Late            // the edge was late within lateFor
	Together        // more than 5 % of the edge's connections turned unhealthy within togetherFor
	Capped          // 1 % of them were closed within cappedFor
	Reasons  = iota
)

var reasonNames = [Reasons]string{"", "report", "lag", "together", "cap"}

func (r Reason) String() string { return reasonNames[r] }

const (
	// TooLate is how late a loop may be without being what a round trip waited for: an eighth of
	// the shortest spike.
	TooLate = 100 * time.Millisecond
	lateFor = 10 * time.Second
	// Who suffers from one cause is noticed within a heartbeat, for each has its own time: twice
	// the default one.
	togetherFor  = time.Minute
	togetherStep = togetherFor / 12
	cappedFor    = 10 * time.Second
	cappedStep   = cappedFor / 10
)

// Gate reports whether an unhealthy connection may be closed. The loops of an edge share it,
// without a lock; their times are nanoseconds from about the same point. With several loops at once
// it may refuse one more than it has to, and never allows one more.
type Gate struct {
	connections []held // by loop
	lateUntil   atomic.Int64
	turned      recent
	closed      recent
}

// held has a cache line of its own.
type held struct {
	n atomic.Int64
	_ [56]byte
}

// NewGate makes the gate of so many loops.
func NewGate(loops int) *Gate {
	return &Gate{
		connections: make([]held, loops),
		// One part more than the time has, for the present one is not over.
		turned: newRecent(togetherStep, int(togetherFor/togetherStep)+1),
		closed: newRecent(cappedStep, int(cappedFor/cappedStep)+1),
	}
}

// Holds says how many connections a loop has.
func (g *Gate) Holds(loop uint16, n int64) { g.connections[loop].n.Store(n) }

// Late says that a loop is late.
func (g *Gate) Late(now int64) { g.lateUntil.Store(now + int64(lateFor)) }

// Turned says that a connection turned unhealthy.
func (g *Gate) Turned(now int64) { g.turned.add(now, 1) }

// Close takes the right to close a connection, or says why not.
func (g *Gate) Close(now int64) Reason {
	if now < g.lateUntil.Load() {
		return Late
	}
	all := int64(0)
	for i := range g.connections {
		all += g.connections[i].n.Load()
	}
	if n := g.turned.sum(now); n > 1 && n*100 > all*5 {
		// one alone is not together with others, however few there are
		return Together
	}
	// Taken first, then looked at.
	g.closed.add(now, 1)
	if g.closed.sum(now) > max(all/100, 1) {
		g.closed.add(now, -1)
		return Capped
	}
	return None
}

// recent counts what happened lately, by parts of time.
type recent struct {
	step int64
	// the number of the part of time in the high half, the count in the low one
	parts []atomic.Uint64
}

func newRecent(step time.Duration, parts int) recent {
	return recent{int64(step), make([]atomic.Uint64, parts)}
}

func (r *recent) part(now int64) uint32 { return uint32(now/r.step) + 1 }

// add adds to the present part; where another loop has begun a later one in its place, to that.
func (r *recent) add(now int64, n int32) {
	part := r.part(now)
	at := &r.parts[part%uint32(len(r.parts))]
	for {
		was := at.Load()
		next := uint64(part)<<32 | uint64(max(n, 0))
		if int32(uint32(was>>32)-part) >= 0 {
			next = was>>32<<32 | uint64(max(int32(uint32(was))+n, 0))
		}
		if at.CompareAndSwap(was, next) {
			return
		}
	}
}

func (r *recent) sum(now int64) (n int64) {
	part := r.part(now)
	for i := range r.parts {
		v := r.parts[i].Load()
		if age := int32(part - uint32(v>>32)); age < int32(len(r.parts)) {
			n += int64(uint32(v))
		}
	}
	return n
}
