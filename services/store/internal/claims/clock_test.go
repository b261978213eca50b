package claims

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// The estimate is never ahead of the database, never goes back, and is behind by the shortest round
// trip of late at most, whatever the others took.
func TestClock(t *testing.T) {
	began := time.Now()
	random := rand.New(rand.NewPCG(1, 2))
	c := newClock(began)
	const ahead = 1_000_000_000_000
	truth := func(at time.Time) uint64 { return ahead + uint64(at.Sub(began).Microseconds()) }
	at, last := began, uint64(0)
	for i := range 10_000 {
		asked := at.Add(time.Duration(random.IntN(100)) * time.Millisecond)
		there := asked.Add(time.Duration(random.IntN(20_000)+200) * time.Microsecond)
		at = there.Add(time.Duration(random.IntN(20_000)+200) * time.Microsecond)
		if err := c.note(asked, at, truth(there)); err != nil {
			t.Fatal(err)
		}
		now := c.now(at)
		if now > truth(at) || now < last {
			t.Fatalf("%d: %d after %d, true is %d", i, now, last, truth(at))
		}
		if last = now; i > 64 && now+20_000 < truth(at) {
			t.Fatalf("%d: %d µs behind", i, truth(at)-now)
		}
	}
}

// A database that goes on after a jump of its clock, or another one that took its place, is
// believed.
func TestClockJumps(t *testing.T) {
	began := time.Now()
	c := newClock(began)
	ask := func(after time.Duration, says uint64) error {
		return c.note(began.Add(after), began.Add(after+2*time.Millisecond), says)
	}
	now := func(after time.Duration) uint64 { return c.now(began.Add(after)) }
	for _, err := range []error{ask(0, 1e9), ask(time.Second, 1e9+1e6)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := now(2 * time.Second); got < 1e9+2e6-2100 || got > 1e9+2e6 {
		t.Errorf("%d", got)
	}
	if err := ask(2*time.Second, 5e9); err != nil {
		t.Fatal(err)
	}
	if got := now(3 * time.Second); got < 5e9+1e6-2100 || got > 5e9+1e6 {
		t.Errorf("after a jump forward: %d", got)
	}
	// A little back: it stands still until the database has caught up.
	if err := ask(3*time.Second, 5e9+1e6-500_000); err != nil {
		t.Fatal(err)
	}
	was := now(3 * time.Second)
	if got := now(3200 * time.Millisecond); got != was || got < 5e9+1e6-2100 {
		t.Errorf("%d, was %d", got, was)
	}
	if got := now(4 * time.Second); got <= was {
		t.Errorf("%d, was %d", got, was)
	}
	if err := ask(4*time.Second, 2e9); !errors.Is(err, errBack) {
		t.Errorf("far back: %v", err)
	}
	if got := now(5 * time.Second); got < 2e9+1e6-2100 || got > 2e9+1e6 {
		t.Errorf("after that: %d", got)
	}
}

// A quick answer is better than later slow ones, for as long as clocks can be trusted to keep step;
// what is kept of answers is bounded.
func TestAClockGoesByItsBestAnswer(t *testing.T) {
	began := time.Now()
	c := newClock(began)
	const ahead = 1_000_000_000_000
	truth := func(at time.Duration) uint64 { return ahead + uint64(at.Microseconds()) }
	late := func(at time.Duration) time.Duration {
		return time.Duration(truth(at)-c.now(began.Add(at))) * time.Microsecond
	}
	if c.now(began) != 0 {
		t.Error("a time without an answer")
	}
	note := func(at, takes time.Duration) {
		t.Helper() // the database is asked at once, and the answer takes all the time
		if err := c.note(began.Add(at-takes), began.Add(at), truth(at-takes)); err != nil {
			t.Fatal(err)
		}
	}
	note(0, 0)
	for s := time.Second; s <= 29*time.Second; s += time.Second {
		note(s, 20*time.Millisecond)
		if got, most := late(s), time.Duration(s.Seconds()*200)*time.Microsecond; got > most+2*time.Microsecond || got < most {
			t.Fatalf("%s after the best answer it is late by %s, want %s", s, got, most)
		}
	}
	note(30*time.Second, 20*time.Millisecond)
	if got := late(30 * time.Second); got > 7*time.Millisecond {
		t.Errorf("30 s after the best answer it is late by %s", got)
	}
	note(31*time.Second, 20*time.Millisecond)
	if got := late(31 * time.Second); got < 19*time.Millisecond || got > 20*time.Millisecond {
		t.Errorf("31 s after the best answer it is late by %s, want what the last ones are", got)
	}
	for i := range 3 * samplesKept { // many in no time
		at := 32*time.Second + time.Duration(i)*time.Millisecond
		note(at, time.Millisecond)
		if len(c.samples) > samplesKept {
			t.Fatalf("%d answers are kept", len(c.samples))
		}
	}
	if first := c.samples[0].answered; first != 32*time.Second+2*samplesKept*time.Millisecond {
		t.Errorf("the oldest answer that is kept is of %s", first)
	}
}
