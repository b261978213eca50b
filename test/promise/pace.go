package promise

import (
	"context"
	"slices"
	"time"
)

const (
	// paceEvery is how often the pace is taken, paceWork the steps of work each time: a hundredth
	// of a core.
	paceEvery = time.Second
	paceWork  = 4 << 20
	// paceTime is how long the work takes beside all tests, on the machine for which the judge's
	// times were chosen. Alone it takes a third of it.
	paceTime = 30 * time.Millisecond
	// slownessMost is as slow as a machine may be: a store that never wrote ACKs down must be
	// noticed on any.
	slownessMost = 5
)

// pace finds out how fast the machine is, beside what it has to do: the time that a fixed amount of
// work takes from the moment at which it is due.
type pace struct{ took []time.Duration }

// run until ctx ends.
func (p *pace) run(ctx context.Context) {
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	for x := uint64(1); ; {
		select {
		case <-ctx.Done():
			return
		case due := <-tick.C:
			if x = steps(x, paceWork); x != 0 { // it never is, which the compiler can't know
				p.took = append(p.took, time.Since(due))
			}
		}
	}
}

// steps of a generator of pseudo-random numbers, which takes its time and nothing else.
func steps(x uint64, n int) uint64 {
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// slowness is how many times as long as paceTime the work took, in the middle of all times; at
// least 1, and at most slownessMost. It is read after run.
func (p *pace) slowness() float64 {
	if len(p.took) == 0 {
		return 1
	}
	slices.Sort(p.took)
	return min(max(1, float64(p.took[len(p.took)/2])/float64(paceTime)), slownessMost)
}
