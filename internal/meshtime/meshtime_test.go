package meshtime

import (
	"testing"
	"time"
)

func micros(t time.Time) uint64 { return uint64(t.UnixMicro()) }

// apart is how far the clock is from what time it is.
func apart(c *Clock, now, really time.Time) time.Duration { return c.At(now).Sub(really).Abs() }

// A machine whose clock is wrong goes by the database's time as soon as a store has said it.
func TestAClockGoesByTheDatabase(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, 0, time.Hour} {
		c := New(nil)
		if now := c.began; apart(c, now, now) > 0 {
			t.Errorf("before a store has said anything the time is %v, not the machine's %v", c.At(now), now)
		}
		c.observe(c.began, micros(c.began.Add(-wrong)))
		for _, later := range []time.Duration{0, time.Second, time.Hour} {
			if now := c.began.Add(later); apart(c, now, now.Add(-wrong)) > time.Millisecond {
				t.Errorf("a clock that is %v wrong says %v at %v", wrong, c.At(now), now.Add(-wrong))
			}
		}
		if err := c.Check(); (err != nil) != (wrong != 0) {
			t.Errorf("%v wrong: %v", wrong, err)
		}
	}
}

// Beats that come late, as after the process stood still, do not move the time: it would be as far
// behind as they are.
func TestAClockIsNotMovedByLateBeats(t *testing.T) {
	c := New(nil)
	now := c.began
	step := func(d, late time.Duration) {
		now = now.Add(d)
		c.observe(now, micros(now.Add(-late)))
		if apart(c, now, now) > time.Millisecond {
			t.Fatalf("%v after the beginning the time is %v wrong", now.Sub(c.began), apart(c, now, now))
		}
	}
	for range 20 {
		step(500*time.Millisecond, 0)
	}
	for late := time.Minute; late > 0; late -= 500 * time.Millisecond {
		// all that waited comes at once
		step(time.Microsecond, late)
	}
	for range 20 {
		step(500*time.Millisecond, 0)
	}
}

// The time follows the database where that is set, and where the first beat came late.
func TestAClockFollowsTheDatabase(t *testing.T) {
	c := New(nil)
	now := c.began
	c.observe(now, micros(now.Add(-time.Minute)))
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute} {
		for range 20 {
			now = now.Add(500 * time.Millisecond)
			c.observe(now, micros(now.Add(ahead)))
		}
		if d := apart(c, now, now.Add(ahead)); d > time.Millisecond {
			t.Errorf("%v wrong, ten seconds after the database was set to be %v ahead", d, ahead)
		}
	}
}
