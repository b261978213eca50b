package edge

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	for _, c := range []struct {
		connections, rate int
		patience          time.Duration
		spread, jitter    time.Duration
	}{
		{0, 1000, 10 * time.Second, 0, leastJitter},
		{100, 1000, 10 * time.Second, 100 * time.Millisecond, leastJitter},
		{5000, 1000, 10 * time.Second, 5 * time.Second, leastJitter},
		{15_000, 600, 30 * time.Second, 25 * time.Second, leastJitter},
		// Patience is too short: clients wait instead, but not for long.
		{10_000, 1000, 10 * time.Second, 7500 * time.Millisecond, 2500 * time.Millisecond},
		{1_000_000, 1000, 10 * time.Second, 7500 * time.Millisecond, mostJitter},
		{1000, 1000, time.Second, 0, time.Second},
	} {
		if spread, jitter := pace(c.connections, c.rate, c.patience); spread != c.spread || jitter != c.jitter {
			t.Errorf("%d connections at %d/s within %v: over %v, jitter %v; want %v, %v", c.connections, c.rate, c.patience, spread, jitter, c.spread, c.jitter)
		}
	}
}
