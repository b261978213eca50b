package loop

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// What held a loop up for more than 50 ms is known by its part of the turn; what was before the
// last tick is not named.
func TestWhatHeldALoopUpIsNamed(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	takes := func(part string, d time.Duration) {
		l.begins()
		l.clock.at -= int64(d) // as if it had taken so long
		l.did(part, true)
	}
	takes(partWork, time.Hour)
	l.sample(lagWarning)
	if h := l.stats.Held; h != (Held{}) || l.stats.Lag.Warnings != 0 {
		t.Fatalf("a lag of 50 ms is warned of: %+v", h)
	}
	takes(partRead, 2*time.Hour)
	takes(partWork, 3*time.Hour)
	takes(partFlush, time.Hour)
	l.clock.at -= int64(4 * time.Hour)
	l.did(partCloses, false) // had nothing to do
	l.sample(lagWarning + 1)
	if h := l.stats.Held; h.Part != partWork || h.Took < 3*time.Hour || h.Lag != lagWarning+1 || l.stats.Lag.Warnings != 1 {
		t.Fatalf("held up by %+v", h)
	}
	l.sample(time.Hour)
	if h := l.stats.Held; h.Part != "" || h.Took != 0 || h.Lag != time.Hour {
		t.Fatalf("nothing was done since the last tick, and it was held up by %+v", h)
	}
}

// Where turns follow one another, the end of one is where the next begins; where the loop has
// waited, the wait is nobody's.
func TestWaitingHoldsNothingUp(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	for l.turn() {
	}
	l.clock.at -= int64(time.Hour) // as if it had waited
	l.clock.part, l.clock.longest = "", 0
	if l.turn(); l.clock.longest >= int64(time.Hour) {
		t.Fatalf("the wait counts for %s", l.clock.part)
	}
	l.clock.at -= int64(time.Hour)
	l.clock.goes = true // as if it had not
	if l.turn(); l.clock.longest < int64(time.Hour) || l.clock.part != partPoll {
		t.Fatalf("what follows on a turn counts for %q, %v", l.clock.part, time.Duration(l.clock.longest))
	}
}

// An operator who sets the host's clock, or a time server that steps it, neither makes an edge
// unready that turns nor hides a loop that does not: readiness compares monotonic readings. A time
// without one would be compared with the wall.
func TestReadinessDoesNotFollowTheHostsClock(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	for _, when := range []string{"made", "turned"} {
		//nolint:staticcheck // Equal compares the wall where one of the two has no monotonic reading; == sees whether there is one
		if last := l.LastTurn(); last == last.Round(0) {
			t.Fatalf("a loop that was just %s knows by the wall alone when that was: %v", when, last)
		}
		if err := l.Check(); err != nil {
			t.Fatalf("a loop that was just %s is not ready: %v", when, err)
		}
		l.turn()
	}
	l.lastTurn.Add(-int64(stalled + time.Second))
	if l.Check() == nil {
		t.Fatal("a loop that has not turned for long is ready")
	}
}
