package dbgate

import (
	"math"
	"time"
)

// Constants of the adaptive limit.
const (
	// leastInterval, leastSamples and twice the time that a piece of work takes must all be reached
	// before a window is judged; one that takes longer than longestWindow is thrown away.
	leastInterval   = 40 * time.Millisecond
	leastSamples    = 32
	longestInterval = 3 * time.Second
	// probeShare of the limit is what a probe works with, once in probeAfter windows.
	probeShare = 0.75
	probeAfter = 20
	// A probe says nothing any more once the limit has grown by more than outgrown of it (one at
	// least), or come closer to the probe's concurrency than apart.
	outgrown = 0.08
	apart    = 1.15
	// busy is the share of the limit that must have been in use for a window to say anything about
	// it.
	busy = 0.8
	// Elasticities of goodput: above worthMore the limit grows by one, below worthLess it shrinks
	// by one, below harmful at once by a fifth.
	worthMore = 0.65
	worthLess = 0.3
	harmful   = -0.3
	// So many harmful windows in a row, or one that is so long, are not a hiccup of the machine.
	believed = 2
	hiccup   = time.Second
)

// Limit of concurrent work, fitted to what the database bears. In most windows of time the limit is
// used in full, in some (the probes) a part of it. The two together give the elasticity of goodput
// e = d ln(goodput) / d ln(concurrency): 1 where more work at a time gets as much more done, 0
// where it only waits longer, below 0 where it gets in its own way. The limit climbs while e is
// near 1 and falls while it is near 0, so that it stays at the knee, wherever that moves: no
// absolute latency is remembered, and a database that becomes slower as a whole changes nothing.
//
// Goodput is the work answered, each class of work counted with its usual cost, so that a change of
// the mix is not taken for a change of the database. Time is passed in; Limit is not safe for
// concurrent use.
type Limit struct {
	least, most float64
	limit       float64
	interval    interval
	probe       measure // of the last probe; zero: none that still says anything
	probedAt    float64 // the limit then
	probing     bool
	sinceProbe  int
	harmful     int              // windows in a row
	afterChange bool             // the window holds work begun under another limit
	cost        [classes]float64 // usual seconds of each class
}

// interval gathers what was done since it began.
type interval struct {
	begun   time.Time
	seconds float64 // spent by all samples together
	samples int
	work    [classes]float64 // answered, by class
}

// measure is what a window found: how much was under way on average, and what was answered each
// second, by class.
type measure struct {
	concurrency float64
	rate        [classes]float64
}

// NewLimit begins at most: where little is done nothing is held back, and what is too much shows
// soon.
func NewLimit(least, most int) *Limit {
	return &Limit{least: float64(least), most: float64(most), limit: float64(most)}
}

// Now is how much may be done at a time.
func (l *Limit) Now() int {
	if l.probing {
		return max(1, int(l.limit*probeShare))
	}
	return int(l.limit)
}

// Done notes that one piece of work of a class has ended, how long the database took for it, and
// whether it was answered.
func (l *Limit) Done(class Class, took time.Duration, answered bool, now time.Time) {
	w := &l.interval
	if w.samples == 0 && w.begun.IsZero() {
		w.begun = now
		return
	}
	seconds := took.Seconds()
	w.samples++
	w.seconds += seconds
	if answered {
		w.work[class]++
		if l.cost[class] == 0 {
			l.cost[class] = seconds
		}
		l.cost[class] += (seconds - l.cost[class]) / 1000
	}
	span := now.Sub(w.begun)
	switch {
	case span > longestInterval:
		l.begin(now)
	case span >= leastInterval && w.samples >= leastSamples && span.Seconds() >= 2*w.seconds/float64(w.samples):
		if l.afterChange { // the first window after a change only lets what was begun before end
			l.afterChange = false
		} else {
			l.judge(span)
		}
		l.begin(now)
	}
}

func (l *Limit) begin(now time.Time) {
	l.interval = interval{begun: now}
}

func (l *Limit) measure(span time.Duration) (m measure) {
	for class, n := range l.interval.work {
		m.rate[class] = n / span.Seconds()
	}
	m.concurrency = l.interval.seconds / span.Seconds() // Little's law
	return m
}

// goodput is what was answered each second, counted in seconds of usual cost: with the same costs
// for all that is compared.
func (l *Limit) goodput(m measure) (sum float64) {
	for class, rate := range m.rate {
		sum += rate * l.cost[class]
	}
	return sum
}

func (l *Limit) judge(span time.Duration) {
	m := l.measure(span)
	if m.concurrency < busy*float64(l.Now()) {
		l.probing = false // not the limit holds it back: nothing to be learned
		return
	}
	if l.probing {
		l.probe, l.probedAt, l.probing, l.sinceProbe, l.afterChange = m, l.limit, false, 0, true
		return
	}
	l.sinceProbe++
	ratio := m.concurrency / l.probe.concurrency
	if l.probe.concurrency == 0 || ratio < apart || l.sinceProbe > probeAfter || l.limit > l.probedAt+max(1, outgrown*l.probedAt) {
		l.probing, l.afterChange = true, true
		return
	}
	l.move(span, math.Log(l.goodput(m)/l.goodput(l.probe))/math.Log(ratio))
}

// move fits the limit to an elasticity.
func (l *Limit) move(span time.Duration, e float64) {
	before := l.limit
	switch {
	case e > worthMore:
		l.limit = min(l.most, math.Floor(l.limit)+1)
	case e < harmful || math.IsNaN(e):
		if l.harmful++; l.harmful < believed && span < hiccup {
			return
		}
		l.limit = max(l.least, math.Floor(l.limit*0.8))
		l.probe = measure{} // what it was measured against has passed
	case e < worthLess:
		l.limit = max(l.least, math.Floor(l.limit)-1)
	}
	l.afterChange = l.limit < before
	if e >= harmful {
		l.harmful = 0 // until then each further harmful window is believed at once
	}
}
