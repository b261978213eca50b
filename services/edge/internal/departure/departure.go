// Package departure is who of an event loop's connections is asked to go elsewhere, and at which
// pace: a share of them (rebalance), or all of them for a planned stop (drain), which ends once
// sessions are saved and connections closed.
package departure

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// State of a connection, as far as a departure is concerned.
type State uint8

// States.
const (
	Gone    State = iota // free, or closing
	Early                // not welcomed yet, and its Hello has not come
	Waiting              // not welcomed yet: it is asked once it is (Welcomed)
	Staying              // open
	Going                // open, and was asked to go
)

// Delivery is what departures need of the loop's connections.
type Delivery interface {
	// Slots is how many slots there are. State is that of the connection in one.
	Slots() uint32
	State(slot uint32) State
	// AskToGo sends GOAWAY to an open connection, which gets no first delivery any more and is
	// closed at until (Now's nanoseconds), or once it has ACKed what it was sent. One that was
	// asked before is closed at until if that is sooner.
	AskToGo(slot uint32, m *wirev1.GoAway, until int64)
	// TurnAway closes one with GOAWAY alone.
	TurnAway(slot uint32, m *wirev1.GoAway)
	// Connections is how many there are. Now is the time, in nanoseconds since any point.
	Connections() int
	Now() int64
}

const (
	// Patience is how long a connection has for ACKs of what it was sent before GOAWAY.
	Patience = 2 * time.Second
	// margin is how much earlier than a stop its connections are closed.
	margin = 200 * time.Millisecond
	// askSlice is how many slots are looked at in one go.
	askSlice = 256
)

// Departures of a loop, which alone uses them.
type Departures struct {
	delivery Delivery
	jobs     *walk.Jobs
	leaving  *leaving // nil: nobody is asked to go
	stop     *stop    // nil: the loop takes newcomers in
}

// New makes one under which everybody stays.
func New(d Delivery, jobs *walk.Jobs) *Departures { return &Departures{delivery: d, jobs: jobs} }

// leaving asks connections to go, over a time, so that whoever takes them in is not stormed: all
// there are, or a random sample of a certain size. It goes over the slots once; by each tick as
// many were asked as the time that has passed is of the whole.
type leaving struct {
	d            *Departures
	going        goAway
	began, takes int64 // nanoseconds; takes 0: at once
	wanted       int
	all          bool
	onAsked      func() // everyone was; may be nil
	next         uint32 // slot that has not been looked at
	left         int    // connections not looked at, where a sample is taken
	asked        int
	due          int  // are asked by now, while the time is not over
	amongJobs    bool // it waits for its next slice
}

// begin begins one; one that was under way ends where it is.
func (d *Departures) begin(l leaving) {
	l.d, l.began = d, d.delivery.Now()
	d.leaving = &l
	d.Tick()
}

// Tick has those asked whose time has come.
func (d *Departures) Tick() {
	l := d.leaving
	if l == nil {
		return
	}
	if passed := d.delivery.Now() - l.began; passed < l.takes {
		// afterwards it is everyone's, who came meanwhile among them
		l.due = int(float64(l.wanted) * float64(passed) / float64(l.takes))
	}
	if !l.amongJobs {
		l.amongJobs = true
		d.jobs.Push(l)
	}
}

// Step goes on as far as is due. It implements walk.Job.
func (l *leaving) Step() bool {
	d := l.d
	if d.leaving != l {
		return true
	}
	for range askSlice {
		if l.next >= d.delivery.Slots() || !l.all && l.asked >= l.wanted {
			d.leaving = nil
			if l.onAsked != nil {
				l.onAsked()
			}
			return true
		}
		if l.asked >= l.due && d.delivery.Now()-l.began < l.takes {
			l.amongJobs = false
			return true
		}
		if s := d.delivery.State(l.next); l.picks(s) {
			l.asked++
			d.ask(l.next, s, &l.going)
		}
		l.next++
	}
	return false
}

// picks decides about one connection: of those that are left each has the same chance to be among
// those still wanted, so that the sample is as large as was asked for and everyone as likely in it
// as everyone else (selection sampling).
func (l *leaving) picks(s State) bool {
	if s == Gone {
		return false
	}
	if l.all {
		return true
	}
	if s != Staying {
		return false
	}
	l.left--
	return rand.Float64()*float64(l.left+1) < float64(l.wanted-l.asked)
}

// ask tells one connection to go.
func (d *Departures) ask(slot uint32, s State, g *goAway) {
	switch s {
	case Staying, Going:
		until := d.delivery.Now() + int64(Patience)
		if d.stop != nil {
			until = min(until, d.stop.deadline-int64(margin))
		}
		d.delivery.AskToGo(slot, g.frame(), until)
	case Early:
		d.TurnAway(slot)
	case Waiting, Gone: // one that waits for its session is told with Welcome
	}
}

// Rebalance asks a share of the connections to go; the loop goes on taking others in. Shares of a
// connection are rounded at random, so that those of all loops together come out right on average.
func (d *Departures) Rebalance(e exchange.Rebalance) {
	n := 0
	if all := d.delivery.Connections(); d.stop == nil {
		n = min(int(e.Share*float64(all)+rand.Float64()), all)
		d.begin(leaving{
			going: goAway{reason: "the edge moves a share of its connections to other edges", jitterMS: e.JitterMS, addresses: e.Addresses},
			takes: int64(e.OverMS) * int64(time.Millisecond), wanted: n, left: all,
		})
	}
	if e.Reply != nil {
		e.Reply(n)
	}
}
