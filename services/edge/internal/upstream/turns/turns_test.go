package turns

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
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
	for n := range 3 {
		f.Add("a", 2*n)
	}
	f.Add("b", 10)
	f.Add("c", 20)
	f.Drop(f.Add("c", 21))
	round := func(most int) (got []int, whose []string) {
		whose = f.Round(most, func(n int) { got = append(got, n) })
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
	if !slices.Equal(got, []int{4, 12}) || !slices.Equal(third, []string{"a", "b"}) {
		t.Fatalf("%v of %v", got, third)
	}
	if f.Done(third); f.Ready() || f.Len() != 0 {
		t.Errorf("something is left: %+v", f.of)
	}
}

// Whatever comes, is dropped and is given out, in any order: each value is given out once, in order
// for each key, to nobody who has some under way, and nobody is kept without a value.
func TestFairAgreesWithLists(t *testing.T) {
	type one struct {
		n  int
		at *Value[int, int]
	}
	rapid.Check(t, func(t *rapid.T) {
		var f Fair[int, int]
		waits, busy := map[int][]one{}, map[int]bool{}
		var rounds [][]int
		last := 0
		drop := func(key, i int) {
			f.Drop(waits[key][i].at)
			f.Drop(waits[key][i].at) // once too often
			waits[key] = slices.Delete(waits[key], i, i+1)
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			key := rapid.IntRange(0, 3).Draw(t, "key")
			switch rapid.SampledFrom([]string{"add", "add", "add", "drop", "round", "done"}).Draw(t, "step") {
			case "add":
				last++
				waits[key] = append(waits[key], one{last, f.Add(key, last*4+key)})
			case "drop":
				if n := len(waits[key]); n > 0 {
					drop(key, rapid.IntRange(0, n-1).Draw(t, "which"))
				}
			case "round":
				before := maps.Clone(busy)
				most, taken := rapid.IntRange(1, 6).Draw(t, "most"), 0
				whose := f.Round(most, func(v int) {
					key := v % 4
					if taken++; before[key] || waits[key][0].n != v/4 {
						t.Fatalf("%d was given %d", key, v/4)
					}
					waits[key], busy[key] = waits[key][1:], true
					if other := rapid.IntRange(0, 3).Draw(t, "other"); len(waits[other]) > 0 && rapid.Bool().Draw(t, "drops") {
						drop(other, rapid.IntRange(0, len(waits[other])-1).Draw(t, "which"))
					}
				})
				for key, all := range waits {
					if taken < most && len(all) > 0 && !before[key] {
						t.Fatalf("%d of %d were taken, and %d waits", taken, most, key)
					}
				}
				rounds = append(rounds, whose)
			case "done":
				if n := len(rounds); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					for _, key := range rounds[i] {
						busy[key] = false
					}
					f.Done(rounds[i])
					rounds = slices.Delete(rounds, i, i+1)
				}
			}
			kept, ready := 0, false
			for key := range 4 {
				if busy[key] || len(waits[key]) > 0 {
					kept++
				}
				ready = ready || !busy[key] && len(waits[key]) > 0
			}
			if f.Len() != kept || f.Ready() != ready {
				t.Fatalf("%d are kept, %d have something; ready: %v, want %v", f.Len(), kept, f.Ready(), ready)
			}
		}
	})
}

// Who asks now and then asks rarely, who asks again and again does not, until it was quiet for a
// while; and of nobody who was quiet that long is anything kept once others ask.
func TestWhoAsksRarely(t *testing.T) {
	var r Rare[int]
	now := time.Unix(1000, 0)
	for n := range RareMost + 3 {
		if rarely := r.Ask(now, 1); rarely != (n < RareMost) {
			t.Fatalf("asked %d times before: rarely %v", n, rarely)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(RareFor - time.Second - 1)
	if r.Ask(now, 1) {
		t.Error("it was not quiet for long enough")
	}
	if now = now.Add(RareFor); !r.Ask(now, 1) {
		t.Error("it was quiet for long enough")
	}
	for key := range 1000 {
		now = now.Add(RareFor / 100)
		if r.Ask(now, 2+key); len(r.of) > 202 || len(r.of) != r.line.Len() {
			t.Fatalf("%d are kept, %d in line", len(r.of), r.line.Len())
		}
	}
	if _, kept := r.of[1]; kept {
		t.Error("one who is gone is kept")
	}
}

// Lanes keep nothing of those whose functions ran.
func TestLanesForget(t *testing.T) {
	l := NewLanes[int]()
	for key := range 1000 {
		l.Do(key, func() {})
		l.Do(key, func() {})
	}
	for l.run() {
	}
	if l.fair.Len() != 0 || l.n != 0 {
		t.Errorf("%d are kept, %d functions counted", l.fair.Len(), l.n)
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
