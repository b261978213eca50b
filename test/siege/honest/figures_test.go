package honest

import (
	"testing"
	"time"
)

// A p99 is that of what ended since the last Take, within the width of a bucket, and what has
// waited for long counts before it ends: for all subscribers where it is not even published.
func TestFigures(t *testing.T) {
	c := &Crowd{cfg: Config{Subscribers: 200, Topics: 20}, waits: map[uint64]waiting{}}
	for ms := range 1000 {
		c.times[Live].add(time.Duration(ms)*time.Millisecond, 1)
	}
	c.begin(Connect, time.Now().Add(-time.Minute))(false)
	end := c.begin(Publish, time.Now().Add(-2*time.Second))
	c.begin(Subscribe, time.Now().Add(time.Hour))
	f := c.Take()
	if p := f.P99[Live]; p < 990 || p > 990*growth || f.N[Live] != 1000 {
		t.Errorf("p99 of 1 to 1,000 ms is %v of %d", p, f.N[Live])
	}
	if f.N[Publish] != 1 || f.N[Durable] != 10 || f.P99[Durable] < 1900 || f.N[Connect] != 0 || f.N[Subscribe] != 0 {
		t.Errorf("what waits for 2 s: %+v", f)
	}
	end(true)
	if f = c.Take(); f.N[Publish] != 1 || f.N[Durable] != 0 || f.N[Live] != 0 {
		t.Errorf("after its end: %+v", f)
	}
}

// A subscriber has everything up to the first seq that is missing, in whatever order seqs come.
func TestWhatASubscriberHas(t *testing.T) {
	s := newSubscriber(&Crowd{cfg: Config{Topics: 1}}, 0)
	for _, c := range []struct {
		seq, had uint64
		isNew    bool
	}{{2, 0, true}, {2, 0, false}, {3, 0, true}, {1, 3, true}, {1, 3, false}, {5, 3, true}, {4, 5, true}} {
		if got := s.take(c.seq); got != c.isNew || s.had.Load() != c.had {
			t.Errorf("seq %d: new is %v, has all up to %d, want %v and %d", c.seq, got, s.had.Load(), c.isNew, c.had)
		}
	}
}
