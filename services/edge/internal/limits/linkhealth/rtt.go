// Package linkhealth judges the health of links by their round trips. It has no socket and no
// clock: what each heartbeat tells of a link comes in, and whether the link is unhealthy goes out.
// Book keeps what is known of the links of one event loop; Gate, which the loops of an edge share,
// says whether a connection may be closed for it.
//
// A round trip is a spike where it is beyond mean + 3 sigma of the window before it, of 64 samples,
// and beyond 800 ms; until there are 16 samples, beyond 2 s. Spikes stay out of the window. A link
// is unhealthy from the third spike in a row on, until a round trip that is none.
package linkhealth

import (
	"fmt"
	"math"
)

// Mode is what becomes of unhealthy links.
type Mode string

// Modes.
const (
	Off    Mode = "off"    // nobody looks
	Report Mode = "report" // they are counted
	Close  Mode = "close"  // they are closed, as far as Gate allows
)

// ParseMode finds the mode; "" is Report.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return Report, nil
	case Off, Report, Close:
		return m, nil
	}
	return "", fmt.Errorf("--unhealthy %q must be close, report or off", s)
}

const (
	windowSize = 64
	// few samples say too little: until there are so many, the limit is early.
	few   = 16
	early = 2_000_000 // µs
	floor = 800_000   // µs
	// inARow spikes make a link unhealthy.
	inARow = 3
	// calm is a round trip that can't raise the limit above floor: of values between 0 and m, mean
	// + 3 sigma is at most m × (1/2 + √10/2), which is 2.08 m (with a share of p at m and the rest
	// at 0 it is m × (p + 3 √(p(1-p)))). A window of nothing else need not be kept.
	calm = 375_000 // µs
)

// Path is what the kernel knows of a connection.
type Path struct {
	// RTT is the round trip in microseconds, smoothed as TCP does it: an eighth of each new one. 0:
	// unknown.
	RTT uint32
	// Unsent bytes that the kernel has not sent yet.
	Unsent uint32
}

// fresh is what the round trips since the last heartbeat were at least, in microseconds, by how the
// smoothed one went from before to now: one that has risen is below their average, and of one that
// falls, where there was one round trip (of an idle connection, which has a Pong for each
// heartbeat, there is), that one can be told. Without this, the tail of one long round trip would
// look like many.
func fresh(before, now uint32) uint32 {
	one := 8*int64(now) - 7*int64(before)
	return uint32(min(max(one, 0), int64(now)))
}

// limit of what is no spike, behind the samples given, in microseconds.
func limit(samples []quantum) uint32 {
	if len(samples) < few {
		return early
	}
	var sum, squares uint64
	for _, q := range samples {
		v := uint64(q.us())
		sum += v
		squares += v * v
	}
	n := uint64(len(samples))
	variance := float64(n*squares-sum*sum) / float64(n*n)
	beyond := float64(sum)/float64(n) + 3*math.Sqrt(variance)
	return uint32(max(beyond, floor))
}
