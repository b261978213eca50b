package turns

import (
	"context"
	"slices"
	"testing"
	"time"
)

// counted is a job of so many steps, each of which takes so long.
type counted struct {
	name  string
	steps int
	takes time.Duration
	log   *[]string
}

func (c *counted) Step() bool {
	for began := time.Now(); time.Since(began) < c.takes; {
	}
	*c.log = append(*c.log, c.name)
	c.steps--
	return c.steps == 0
}

func TestJobsTakeTurns(t *testing.T) {
	var q Queue
	var log []string
	if q.Ready(false) != nil {
		t.Fatal("there is something to do")
	}
	q.Add(&counted{"a", 3, 0, &log})
	q.Add(&counted{"b", 1, 0, &log})
	q.Add(&counted{"c", 2, 0, &log})
	for q.Ready(false) != nil {
		q.Run()
	}
	if want := []string{"a", "b", "c", "a", "c", "a"}; !slices.Equal(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
	if n := q.Stats().Waiting.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// A slice ends with the step in which its time is over, and work takes no more than half of the
// time from those who need the goroutine.
func TestSlicesEnd(t *testing.T) {
	var q Queue
	var log []string
	q.Add(&counted{"a", 1000, Slice / 5, &log})
	began := time.Now()
	q.Run()
	took := time.Since(began)
	if n := len(log); n > 5 || n == 0 {
		t.Errorf("%d steps in a slice", n)
	}
	if q.Ready(true) != nil && time.Since(began) < 2*took {
		t.Error("it goes on at once although others wait")
	}
	if q.Ready(false) == nil {
		t.Error("it does not go on although nobody waits")
	}
	for q.Ready(true) == nil { // until its rest is over
	}
	if s := q.Stats(); s.Slices.Load() != 1 || s.Waiting.Load() != 1 || s.Longest.Load() < int64(Slice) {
		t.Errorf("%d slices, %d wait, the longest took %v", s.Slices.Load(), s.Waiting.Load(), time.Duration(s.Longest.Load()))
	}
}

func TestThoseWhoAskTakeTurns(t *testing.T) {
	var f Fair[string, int]
	for n := range 5 {
		f.Add("a", n)
	}
	f.Add("b", 10)
	f.Add("c", 20)
	f.Add("c", 21)
	round := func(most int) (got []int, whose []string) {
		whose = f.Round(most, func(n int) bool {
			if n%2 == 0 { // others are not wanted any more
				got = append(got, n)
			}
			return n%2 == 0
		})
		return got, whose
	}
	got, first := round(4)
	if !slices.Equal(got, []int{0, 10, 20, 2}) || !slices.Equal(first, []string{"a", "b", "c"}) {
		t.Fatalf("%v of %v", got, first)
	}
	f.Add("d", 30)
	f.Add("b", 12)
	got, second := round(4)
	if !slices.Equal(got, []int{30}) || !slices.Equal(second, []string{"d"}) || f.Ready() {
		t.Fatalf("%v of %v while others are dealt with", got, second)
	}
	f.Done(second)
	f.Done(first)
	got, third := round(4)
	if !slices.Equal(got, []int{12, 4}) || !slices.Equal(third, []string{"b", "a"}) {
		t.Fatalf("%v of %v", got, third)
	}
	if f.Done(third); f.Ready() || len(f.of) != 0 {
		t.Errorf("something is left: %+v", f.of)
	}
}

// Functions of one key run in order, whoever else has how many waiting: one that comes later is
// next but one.
func TestLanesTakeTurns(t *testing.T) {
	l := NewLanes[string]()
	var log []string
	note := func(s string) func() { return func() { log = append(log, s) } }
	for _, s := range []string{"a1", "a2", "a3", "a4"} {
		if !l.TryDo(4, "a", note(s)) {
			t.Fatal("there is room")
		}
	}
	if l.TryDo(4, "b", note("-")) {
		t.Error("there is no room")
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.Do("b", func() {
		log = append(log, "b1")
		l.Do("b", note("b2"))
		l.Do("c", note("c1"))
		l.Do("a", cancel)
	})
	l.Serve(ctx)
	if want := []string{"a1", "b1", "a2", "c1", "b2", "a3", "a4"}; !slices.Equal(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
}
