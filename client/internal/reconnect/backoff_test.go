package reconnect

import (
	"testing"
	"time"
)

// However often it was tried, the wait is within its bounds.
func TestABackoffDoesNotOverflow(t *testing.T) {
	b := Backoff{Low: time.Millisecond, High: time.Minute}
	for i := range 200 {
		if d, most := b.Next(0), min(time.Millisecond<<min(i, 30), time.Minute); d < most/2 || d > most {
			t.Fatalf("try %d waits for %v, want half of to all of %v", i, d, most)
		}
	}
	b.Reset()
	if d := b.Next(0); d > time.Millisecond {
		t.Errorf("begun anew, it waits for %v", d)
	}
}

// What the mesh says of when to come back is kept to, and spread.
func TestTimesToComeBackAreSpread(t *testing.T) {
	const after = time.Second
	b := Backoff{Low: time.Millisecond, High: 100 * time.Millisecond}
	seen := map[time.Duration]bool{}
	for range 100 {
		d := b.Next(after)
		if d < after || d > after*5/4 {
			t.Fatalf("waits %v, told to wait %v", d, after)
		}
		seen[d] = true
	}
	if len(seen) < 10 {
		t.Fatalf("100 clients come back at %d times", len(seen))
	}
}
