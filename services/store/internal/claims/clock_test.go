package claims

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// The estimate is never ahead of the database, never goes back, and is behind by the shortest round trip of late at most, whatever the others took.
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

// A database that goes on after a jump of its clock, or another one that took its place, is believed.
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
