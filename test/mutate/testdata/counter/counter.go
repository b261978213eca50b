// Package counter is what the tests of the mutate command look at: its own tests notice some faults
// and not others.
package counter

import "errors"

// ErrFull is returned at the limit.
var ErrFull = errors.New("the counter is full")

// Counter counts up to a limit.
type Counter struct {
	n, limit int
	changes  int
}

// Add counts one more, below the limit.
func (c *Counter) Add() error {
	if c.n >= c.limit {
		return ErrFull
	}
	c.n++
	c.changes++ // no test looks at it
	return nil
}

// Even reports whether there is an even number; no test asks.
func (c *Counter) Even() bool {
	return c.n%2 == 0
}

// Drain counts down to zero.
func (c *Counter) Drain() {
	for c.n > 0 {
		c.n--
	}
}

// First is the first positive number, or the last one.
func First(all []int) (found int) {
	for _, n := range all {
		found = n
		if n > 0 {
			break
		}
	}
	return found
}
