// Package lag measures how late a router is with what reaches it, and says what it should refuse so
// that this stays short.
//
// No other signal sees a router that has too little CPU: where messages need neither a store nor
// much memory, they wait in buffers of sockets and streams, before anything counts them.
package lag

import (
	"slices"
	"time"
)

const (
	// window is how many samples are looked at together while nothing is refused. Three quarters
	// must be late: a burst, a garbage collection or a single late wake-up make few samples late;
	// where nearly all are, work is waiting all the time.
	window = 16
	// recent is how many are looked at while something is: what has been refused meanwhile shows in
	// the newest ones alone.
	recent = 4
	// gain is how fast the integral changes, a second, while the lag is twice what it should be; or
	// none at all, downwards.
	gain = 0.3
	// damping is what such a lag adds at once, and what its absence takes away: without it pressure
	// would swing around what is right.
	damping = 0.05
	// worst is how far above the aim a lag counts, as a multiple of it: so pressure rises from
	// nothing to everything within half a second.
	worst = 4
	// ground is where pressure begins: below 0.5 nothing is refused.
	ground = 0.48
	// longest time that one sample stands for. A process that was stopped knows nothing of what
	// happened meanwhile.
	longest = 50 * time.Millisecond
)

// Gauge turns samples of lag into pressure. It does no I/O, takes time as an input, and is not safe
// for concurrent use.
//
// Pressure is that of a controller with an integral: it rises while the lag is above the aim and
// falls while it is below, so that it comes to rest where just so much is refused that the lag is
// the aim.
type Gauge struct {
	aim      time.Duration
	samples  [window]time.Duration
	n        int
	last     time.Time
	integral float64
	pressure float64
}

// NewGauge makes a gauge that keeps the lag below most, by aiming at half of it.
func NewGauge(most time.Duration) *Gauge { return &Gauge{aim: most / 2, integral: ground} }

// Add takes a sample.
func (g *Gauge) Add(now time.Time, late time.Duration) {
	g.samples[g.n%window] = late
	g.n++
	span := max(0, min(now.Sub(g.last), longest))
	g.last = now
	if g.n < window {
		return
	}
	off := min(float64(g.Lag())/float64(g.aim)-1, worst)
	g.integral = min(max(g.integral+gain*off*span.Seconds(), ground), 1)
	if g.pressure = min(g.integral+damping*off, 1); g.pressure < first || g.integral == ground {
		g.pressure = 0
	}
}

// first is the least pressure that refuses anything.
const first = 0.5

// Lag is what three quarters of the last samples exceeded; 0 while there are few.
func (g *Gauge) Lag() time.Duration {
	if g.n < window {
		return 0
	}
	n := window
	if g.integral > first {
		n = recent
	}
	sorted := make([]time.Duration, 0, window)
	for i := range n {
		sorted = append(sorted, g.samples[(g.n-1-i)%window])
	}
	slices.Sort(sorted)
	return sorted[n/4]
}

// Pressure is 0 while nothing is to be refused, and 0.5 to 1 otherwise.
func (g *Gauge) Pressure() float64 { return g.pressure }

// Calm says that the last sample gives no reason to look closely.
func (g *Gauge) Calm() bool {
	return g.integral == ground && (g.n == 0 || g.samples[(g.n-1)%window] < g.aim/4)
}
