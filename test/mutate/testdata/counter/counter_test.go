package counter

import (
	"errors"
	"testing"
)

func TestTheLimit(t *testing.T) {
	c := Counter{limit: 1}
	if err := c.Add(); err != nil || c.n != 1 {
		t.Fatal(err, c.n)
	}
	if err := c.Add(); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
}

func TestDrain(t *testing.T) {
	c := Counter{n: 3}
	c.Drain()
	if c.n != 0 {
		t.Fatal(c.n)
	}
}

func TestFirst(t *testing.T) {
	if got := First([]int{-1, 2, 3}); got != 2 {
		t.Fatal(got)
	}
}
