package dbgate

import "time"

// Constants of a breaker.
const (
	// failuresToOpen in a row.
	failuresToOpen = 5
	// successesToClose is how many probes must succeed, one after the other.
	successesToClose = 2
	// ProbeEvery is the least time between the beginnings of two probes.
	ProbeEvery = 200 * time.Millisecond
	// longestProbe is what ProbeEvery grows to, doubling, where a breaker opens again soon after it
	// closed.
	longestProbe = 8 * ProbeEvery
	// steady is how long a breaker must have been closed to begin with ProbeEvery again.
	steady = 10 * time.Second
	// ramp is how long after closing the full limit is reached, from rampFrom of it.
	ramp     = time.Second
	rampFrom = 0.1
)

// State of a breaker.
type State int

// States.
const (
	Closed   State = iota // everything is let through
	HalfOpen              // a probe is under way, or one has succeeded
	Open                  // nothing is let through but the next probe, when its time has come
)

// String names the state as metrics and /readyz do.
func (s State) String() string { return [...]string{"closed", "half_open", "open"}[s] }

// Outcome of what was let through.
type Outcome int

// Outcomes.
const (
	// Answered: the database answered. An error of the statement itself is an answer.
	Answered Outcome = iota
	// Failed: no connection, no answer in time, or a server that can't work (a full disk).
	Failed
	// Abandoned: the caller gave up. This indicates nothing about the database.
	Abandoned
	// PoolExhausted: the pool had no free connection. That is back-pressure, and indicates nothing
	// about the database either.
	PoolExhausted
)

// Pass is the permission to try once.
type Pass struct {
	generation uint64
	probe      bool
}

// Breaker refuses calls while a database fails. It opens after failuresToOpen failures in a row;
// then it admits single probes until successesToClose of them in a row have succeeded. Outcomes of
// calls that were admitted before its last change don't count, since they describe an earlier
// state. Time is passed in; it is not safe for concurrent use. The zero value is closed.
type Breaker struct {
	state       State
	generation  uint64
	streak      int // failures while closed, successes of probes otherwise
	probing     bool
	probedAt    time.Time // when the last probe began
	pause       time.Duration
	closedAt    time.Time // when it last closed
	openedCount uint64    // how often it opened
}

// State now.
func (b *Breaker) State() State { return b.state }

// Opened returns how often the breaker has opened.
func (b *Breaker) Opened() uint64 { return b.openedCount }

// Enter reports whether a call may be tried now; Leave must be called with the pass once it has
// ended.
func (b *Breaker) Enter(now time.Time) (Pass, bool) {
	if b.state == Closed {
		return Pass{generation: b.generation}, true
	}
	if b.probing || now.Sub(b.probedAt) < b.pause {
		return Pass{}, false
	}
	b.probing, b.probedAt, b.state = true, now, HalfOpen
	return Pass{generation: b.generation, probe: true}, true
}

// Leave records the outcome of a pass.
func (b *Breaker) Leave(p Pass, o Outcome, now time.Time) {
	if p.generation != b.generation {
		return
	}
	switch {
	case p.probe:
		b.probing = false
		b.judge(o == Answered, now) // a probe must not pass by being given up
	case b.state == Closed && o == Failed:
		if b.streak++; b.streak >= failuresToOpen {
			b.open(now)
		}
	case o == Answered:
		b.streak = 0
	}
}

func (b *Breaker) judge(succeeded bool, now time.Time) {
	if !succeeded {
		b.streak, b.state = 0, Open
		return
	}
	if b.streak++; b.streak < successesToClose {
		return
	}
	b.generation++
	b.state, b.streak, b.closedAt = Closed, 0, now
}

func (b *Breaker) open(now time.Time) {
	if b.closedAt.IsZero() || now.Sub(b.closedAt) >= steady {
		b.pause = ProbeEvery
	} else { // it closed too soon: more patience, so that it does not flap
		b.pause = min(2*b.pause, longestProbe)
	}
	b.generation++
	b.openedCount++
	// The first probe, too, comes one pause after the failure.
	b.state, b.streak, b.probedAt, b.probing = Open, 0, now, false
}

// Share of the full limit that may be used now: it grows from rampFrom to 1 after the breaker
// closed.
func (b *Breaker) Share(now time.Time) float64 {
	if b.closedAt.IsZero() {
		return 1
	}
	return min(1, rampFrom+(1-rampFrom)*float64(now.Sub(b.closedAt))/float64(ramp))
}

// RetryAfter returns after which time trying again may succeed.
func (b *Breaker) RetryAfter() time.Duration { return max(b.pause, ProbeEvery) + ProbeEvery }
