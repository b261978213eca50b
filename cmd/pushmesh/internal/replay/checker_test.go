package replay

import (
	"math/rand/v2"
	"testing"
)

// got is one message of a subscriber's stream.
type got struct {
	seq   uint64
	index int
}

func tally(says int, stream ...got) Tally {
	c := NewChecker(says)
	c.Start(1, 10)
	for _, g := range stream {
		c.Got(g.seq, g.index)
	}
	return c.Finish()
}

func TestCheckerFindsPlantedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		stream []got
		want   Tally
	}{
		"all":                    {[]got{{11, 0}, {12, 1}, {13, 2}}, Tally{Delivered: 3}},
		"nothing":                {nil, Tally{Missing: 3}},
		"first missing":          {[]got{{12, 1}, {13, 2}}, Tally{Delivered: 2, Missing: 1}},
		"middle missing":         {[]got{{11, 0}, {13, 2}}, Tally{Delivered: 2, Missing: 1}},
		"last missing":           {[]got{{11, 0}, {12, 1}}, Tally{Delivered: 2, Missing: 1}},
		"published twice":        {[]got{{11, 0}, {12, 1}, {13, 1}, {14, 2}}, Tally{Delivered: 3, Duplicate: 1}},
		"redelivered":            {[]got{{11, 0}, {12, 1}, {11, 0}, {13, 2}}, Tally{Delivered: 3, Absorbed: 1}},
		"delivered out of order": {[]got{{11, 0}, {13, 2}, {12, 1}}, Tally{Delivered: 3, Disorder: 1}},
		"published out of order": {[]got{{11, 0}, {12, 2}, {13, 1}}, Tally{Delivered: 3, Disorder: 1}},
		"of another run":         {[]got{{11, 0}, {12, -1}, {13, 1}, {14, 2}}, Tally{Delivered: 3, Foreign: 1}},
		"beyond the room":        {[]got{{11, 0}, {12, 3}, {13, 1}, {14, 2}}, Tally{Delivered: 3, Foreign: 1}},
	} {
		if got := tally(3, c.stream...); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Whatever the stream, delivered and missing come to the room's says.
func TestCheckerBalances(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		says := 1 + rnd.IntN(200)
		c := NewChecker(says)
		for range rnd.IntN(400) {
			c.Got(uint64(rnd.IntN(300)), rnd.IntN(says+2)-1)
		}
		if got := c.Finish(); got.Delivered+got.Missing != uint64(says) {
			t.Fatalf("%d says: %+v", says, got)
		}
	}
}

func TestCheckerFollowsANewEpoch(t *testing.T) {
	c := NewChecker(3)
	c.Start(1, 100)
	c.Got(101, 0)
	c.Skip(2, 0) // the log began anew: its seqs are lower
	c.Got(1, 1)
	c.Got(2, 2)
	if got := c.Finish(); got != (Tally{Delivered: 3}) {
		t.Fatalf("got %+v", got)
	}
}

func TestCheckerResumesAfterProgress(t *testing.T) {
	c := NewChecker(1)
	c.Start(7, 3)
	c.Skip(7, 9)
	c.Skip(7, 5)
	if epoch, seq := c.Position(); epoch != 7 || seq != 9 {
		t.Fatalf("position %d, %d", epoch, seq)
	}
}
