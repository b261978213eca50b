package replay

import (
	"fmt"
	"time"
)

// Result of a replay.
type Result struct {
	Expected uint64
	Tally
	Took       time.Duration
	Published  uint64
	Acked      uint64
	Reconnects uint64
	P50, P99   time.Duration
}

// OK says that every expected delivery came, once and in order.
func (r Result) OK() bool {
	return r.Delivered == r.Expected && r.Missing == 0 && r.Duplicate == 0 && r.Disorder == 0 && r.Foreign == 0
}

// Summary says how it went, for people.
func (r Result) Summary() string {
	rate := 0.0
	if r.Took > 0 {
		rate = float64(r.Delivered) / r.Took.Seconds()
	}
	s := fmt.Sprintf("published %d messages, delivered %d (%.0f/s), ACKed %d; publish to delivery p50 %s, p99 %s; %d reconnects, %d redeliveries absorbed",
		r.Published, r.Delivered, rate, r.Acked, micros(r.P50.Microseconds()), micros(r.P99.Microseconds()), r.Reconnects, r.Absorbed)
	if r.Foreign > 0 {
		s += fmt.Sprintf("; %d messages that are not of this run", r.Foreign)
	}
	return s
}

// Line is the last line of a replay, for scripts.
func (r Result) Line() string {
	return fmt.Sprintf("expected=%d delivered=%d missing=%d duplicate=%d disorder=%d seconds=%.1f",
		r.Expected, r.Delivered, r.Missing, r.Duplicate, r.Disorder, r.Took.Seconds())
}
