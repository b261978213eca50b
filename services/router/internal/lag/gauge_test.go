package lag

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

const most = 10 * time.Millisecond

var start = time.Unix(1_000_000, 0)

// feed gives a gauge one sample after the other, each when the beat would have it.
type feed struct {
	g   *Gauge
	now time.Time
}

func newFeed() *feed { return &feed{NewGauge(most), start} }

func (f *feed) add(n int, late time.Duration) {
	for range n {
		f.now = f.now.Add(max(late, often))
		f.g.Add(f.now, late)
	}
}

// However late some samples are, nothing is refused as long as a few of any that follow each other
// are in time: bursts, collections of garbage, single late wake-ups.
func TestACalmRouterRefusesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFeed()
		for range 200 {
			late := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Minute)), window, window).Draw(t, "late")
			for i := range late {
				if i%3 == 0 { // more than a quarter
					late[i] %= int64(f.g.aim)
				}
				f.add(1, time.Duration(late[i]))
				if p := f.g.Pressure(); p != 0 {
					t.Fatalf("pressure %v", p)
				}
			}
		}
	})
}

func TestAProcessThatStoodStillRefusesNothing(t *testing.T) {
	f := newFeed()
	f.add(100, 0)
	f.add(1, time.Hour)
	f.add(100, 0)
	if p := f.g.Pressure(); p != 0 || f.g.Lag() != 0 || !f.g.Calm() {
		t.Errorf("pressure %v, lag %v", p, f.g.Lag())
	}
	f.now = f.now.Add(-time.Hour) // a clock that goes back is no reason either
	f.add(1, 0)
	if p := f.g.Pressure(); p != 0 {
		t.Errorf("pressure %v", p)
	}
}

func TestPressureIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFeed()
		for range rapid.IntRange(1, 50).Draw(t, "stretches") {
			f.add(rapid.IntRange(1, 300).Draw(t, "n"), time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "late")))
			if p := f.g.Pressure(); p != 0 && (p < 0.5 || p > 1) {
				t.Fatalf("pressure %v", p)
			}
		}
		f.add(500, 0) // two seconds
		if p := f.g.Pressure(); p != 0 {
			t.Fatalf("pressure %v two seconds after all was in time", p)
		}
	})
}

// play is a router that does one thing after the other: what came in waits until it is its turn,
// and is refused or taken only then.
type play struct {
	g               *Gauge
	take, refuse    time.Duration // what a message costs
	now             time.Time
	arrived         int
	queue           []time.Time // when messages came
	probe           time.Time   // when the one under way was due; zero: none is
	place           int         // messages before it
	next            time.Time
	taken, refused  [shed.Priorities]int
	waits           []time.Duration // of what was taken
	least, greatest float64         // pressure
}

func newPlay(take time.Duration) *play {
	return &play{g: NewGauge(most), take: take, refuse: take / 16, now: start, next: start}
}

// offer lets so many messages a second come for a time, of all priorities alike. What was counted
// before is forgotten.
func (p *play) offer(perSecond float64, d time.Duration) {
	p.taken, p.refused, p.waits, p.least, p.greatest = [10]int{}, [10]int{}, nil, 1, 0
	came := p.now
	every := time.Duration(float64(time.Second) / perSecond)
	for end := p.now.Add(d); p.now.Before(end); {
		for !came.After(p.now) {
			p.queue = append(p.queue, came)
			came = came.Add(every)
		}
		p.sample()
		if len(p.queue) == 0 {
			p.now = came // idle
			continue
		}
		p.serve()
	}
}

// sample takes its turn like a message: behind those that came before.
func (p *play) sample() {
	if !p.probe.IsZero() && p.place <= 0 {
		p.add()
		p.probe = time.Time{}
	}
	if p.now.Before(p.next) {
		return
	}
	if p.probe.IsZero() {
		p.probe, p.place = p.next, len(p.queue)
	} else {
		p.add()
	}
	p.next = p.next.Add(often)
}

func (p *play) add() {
	p.g.Add(p.now, p.now.Sub(p.probe))
	p.least, p.greatest = min(p.least, p.g.Pressure()), max(p.greatest, p.g.Pressure())
}

func (p *play) serve() {
	came := p.queue[0]
	p.queue = p.queue[1:]
	p.place--
	p.arrived++
	priority := p.arrived % shed.Priorities
	if !shed.Passes(p.g.Pressure(), uint32(priority), strconv.Itoa(p.arrived/shed.Priorities%640)) {
		p.refused[priority]++
		p.now = p.now.Add(p.refuse)
		return
	}
	p.taken[priority]++
	p.now = p.now.Add(p.take)
	p.waits = append(p.waits, p.now.Sub(came))
}

func (p *play) p99() time.Duration {
	slices.Sort(p.waits)
	return p.waits[len(p.waits)*99/100]
}

func sum(of [shed.Priorities]int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

func TestOverloadKeepsARouterBusyAndInTime(t *testing.T) {
	for _, take := range []time.Duration{10 * time.Microsecond, 50 * time.Microsecond} {
		t.Run(take.String(), func(t *testing.T) { overload(t, take) })
	}
}

func overload(t *testing.T, take time.Duration) {
	capacity := float64(time.Second / take)
	p := newPlay(take)
	p.offer(0.9*capacity, 2*time.Second)
	if n := sum(p.refused); n != 0 {
		t.Errorf("%d refused below the capacity", n)
	}
	p.offer(3*capacity, time.Second)
	if d := p.p99(); d > 300*time.Millisecond {
		t.Errorf("waited %v at first", d)
	}
	p.offer(3*capacity, 2*time.Second)
	// Three times as many messages cost 3/16 of the time if all are refused: what is left is what
	// can be taken.
	if n := float64(sum(p.taken)); n < 0.95*0.86*capacity*2 {
		t.Errorf("%.0f taken of %.0f that could be", n, 2*0.86*capacity)
	}
	if d := p.p99(); d > most {
		t.Errorf("waited %v", d)
	}
	if p.greatest-p.least > 0.05 {
		t.Errorf("the pressure went from %v to %v: that is more than a priority", p.least, p.greatest)
	}
	for low := range 6 {
		if n := p.taken[low]; n > 0 {
			t.Errorf("priority %d: %d taken, %d refused", low, n, p.refused[low])
		}
	}
	if n := p.refused[9]; n > 0 {
		t.Errorf("priority 9: %d refused", n)
	}
	p.offer(0.9*capacity, 2*time.Second) // the integral takes more than one
	p.offer(0.9*capacity, time.Second)
	if n := sum(p.refused); n != 0 {
		t.Errorf("%d refused after it was over", n)
	}
}
