package claims

import (
	"errors"
	"slices"
	"time"
)

const (
	// samplesKept and sampleAge bound what the estimate rests on.
	samplesKept = 64
	sampleAge   = 30 * time.Second
	// drift is how much two clocks may part company in a second, beyond what is good hardware's.
	drift = 200 * time.Microsecond
	// backMost is how far the database's clock may go back and be waited for.
	backMost = time.Second
)

var errBack = errors.New("the database's clock went back")

// clock is the database's time, in Unix microseconds, from what it answered and this process's
// monotonic clock. The host's wall clock has no part in it. It is never ahead of the database, as
// far as answers show, and late by the shortest round trip at most: nothing ends before its
// time. It never goes back, but after errBack.
type clock struct {
	began   time.Time // mono 0
	samples []sample
	last    uint64
}

// sample is one answer: at mono asked to mono answered the database's time was at.
type sample struct {
	asked, answered time.Duration
	at              uint64
}

// offset that is the least the database's time may be ahead of mono.
func (s sample) offset() int64 { return int64(s.at) - s.answered.Microseconds() }

// least and most that the offset may be at mono now.
func (s sample) bounds(now time.Duration) (least, most int64) {
	slack := int64(float64(drift.Microseconds())*(now-s.answered).Seconds()) + 1
	return s.offset() - slack, int64(s.at) - s.asked.Microseconds() + slack
}

func newClock(now time.Time) *clock { return &clock{began: now} }

// note takes an answer in. errBack: the database's clock went back, by more than is waited for.
func (c *clock) note(asked, answered time.Time, at uint64) error {
	s := sample{asked: asked.Sub(c.began), answered: answered.Sub(c.began), at: at}
	least, most := s.bounds(s.answered)
	c.samples = slices.DeleteFunc(c.samples, func(old sample) bool {
		a, b := old.bounds(s.answered)
		// one of the clocks jumped since
		return s.answered-old.answered > sampleAge || b < least || a > most
	})
	if len(c.samples) == samplesKept {
		c.samples = slices.Delete(c.samples, 0, 1)
	}
	c.samples = append(c.samples, s)
	if latest := uint64(max(most+s.answered.Microseconds(), 0)); c.last > latest+uint64(backMost.Microseconds()) {
		c.last = 0
		return errBack
	}
	return nil
}

// now estimates: the greatest time that the database's is known to have reached.
func (c *clock) now(at time.Time) uint64 {
	mono := at.Sub(c.began)
	if len(c.samples) == 0 {
		return c.last
	}
	best := c.samples[len(c.samples)-1].offset()
	for _, s := range c.samples {
		least, _ := s.bounds(mono)
		best = max(best, least)
	}
	c.last = max(c.last, uint64(max(best+mono.Microseconds(), 0)))
	return c.last
}
