package dbgate

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// knee is a database that takes base for a statement while at most at work at a time, and gets in
// its own way beyond.
type knee struct {
	base time.Duration
	at   float64
}

func (k knee) takes(concurrent int) time.Duration {
	return time.Duration(float64(k.base) * math.Pow(max(1, float64(concurrent)/k.at), 1.5))
}

// ends is a heap of what is under way.
type ends []struct{ at, took time.Duration }

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at < e[j].at }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(struct{ at, took time.Duration })) } //nolint:forcetypeassert // heap's
func (e *ends) Pop() any          { old := *e; x := old[len(old)-1]; *e = old[:len(old)-1]; return x }

// simulation keeps as much under way as a limit allows, on a clock of its own.
type simulation struct {
	now  time.Duration
	busy ends
	rng  *rand.Rand
	// hiccups: about every 2 s the machine stands still for 200 ms.
	hiccups bool
	next    time.Duration
}

func (s *simulation) stumble() {
	if !s.hiccups || s.now < s.next {
		return
	}
	s.next = s.now + time.Duration(1000+s.rng.IntN(2000))*time.Millisecond
	for i := range s.busy {
		s.busy[i].at += 200 * time.Millisecond
		s.busy[i].took += 200 * time.Millisecond
	}
}

var epoch = time.Unix(1_700_000_000, 0)

// run goes on for a span and says how many statements ended in it. adapt nil: the limit is fixed.
func (s *simulation) run(db knee, span time.Duration, fixed int, adapt *Limit) (done int) {
	until := s.now + span
	for {
		s.stumble()
		limit := fixed
		if adapt != nil {
			limit = adapt.Now()
		}
		for len(s.busy) < limit {
			took := time.Duration(float64(db.takes(len(s.busy)+1)) * (0.8 + 0.4*s.rng.Float64()))
			heap.Push(&s.busy, struct{ at, took time.Duration }{s.now + took, took})
		}
		if s.busy[0].at > until {
			s.now = until
			return done
		}
		next := heap.Pop(&s.busy).(struct{ at, took time.Duration }) //nolint:forcetypeassert // heap's
		s.now = next.at
		if done++; adapt != nil {
			adapt.Done(0, next.took, true, epoch.Add(s.now))
		}
	}
}

// best goodput of any fixed size, each second.
func best(db knee, seed uint64) (goodput float64, size int) {
	for n := int(db.at) - 1; n <= int(db.at)+2; n++ {
		// goodput rises up to the knee and falls from there
		s := simulation{rng: rand.New(rand.NewPCG(seed, 1))}
		if got := float64(s.run(db, 2*time.Second, n, nil)) / 2; got > goodput {
			goodput, size = got, n
		}
	}
	return goodput, size
}

// follows runs a limit over knees one after the other: 30 s to find each, then 20 s that count.
func follows(t interface{ Errorf(string, ...any) }, seed uint64, base time.Duration, least float64, knees ...float64) (report string) {
	limit := NewLimit(2, 64)
	s := simulation{rng: rand.New(rand.NewPCG(seed, 2))}
	for _, at := range knees {
		db := knee{base, at}
		most, size := best(db, seed)
		s.run(db, 30*time.Second, 0, limit)
		got := float64(s.run(db, 20*time.Second, 0, limit)) / 20
		report += fmt.Sprintf("knee %v: %.0f/s, %.0f %% of the best fixed size (%d)\n", at, got, 100*got/most, size)
		if got < least*most {
			t.Errorf("seed %d, knee %v: %.0f/s, the best fixed size (%d) does %.0f/s", seed, at, got, size, most)
		}
	}
	return report
}

func TestLimitFollowsTheKnee(t *testing.T) {
	t.Log("\n" + follows(t, 1, 5*time.Millisecond, 0.9, 8, 24, 8))
}

// Near a small knee one more or one less at a time is a tenth of the goodput.
func TestLimitFollowsOtherKnees(t *testing.T) {
	for seed, base := range []time.Duration{4 * time.Millisecond, 15 * time.Millisecond, 40 * time.Millisecond} {
		for _, knees := range [][]float64{{9, 30}, {12, 10}, {28, 16}} {
			follows(t, uint64(seed), base, 0.85, knees...)
		}
	}
}

// A machine that has other things to do now and then is no reason to do less. The time lost is a
// tenth.
func TestLimitBearsHiccups(t *testing.T) {
	limit := NewLimit(2, 32)
	s := simulation{rng: rand.New(rand.NewPCG(4, 4)), hiccups: true}
	for _, at := range []float64{8, 24} {
		db := knee{40 * time.Millisecond, at}
		most, _ := best(db, 4)
		s.run(db, 30*time.Second, 0, limit)
		if got := float64(s.run(db, 20*time.Second, 0, limit)) / 20; got < 0.75*most {
			t.Errorf("knee %v: %.0f/s of %.0f/s without hiccups", at, got, most)
		}
	}
}

// A database that becomes slower as a whole has its knee where it was.
func TestLimitIgnoresAbsoluteLatency(t *testing.T) {
	limit := NewLimit(2, 64)
	s := simulation{rng: rand.New(rand.NewPCG(3, 3))}
	for _, base := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, time.Millisecond} {
		db := knee{base, 16}
		most, _ := best(db, 3)
		s.run(db, 30*time.Second, 0, limit)
		if got := float64(s.run(db, 20*time.Second, 0, limit)) / 20; got < 0.9*most {
			t.Errorf("base %s: %.0f/s of %.0f/s", base, got, most)
		}
	}
}

func TestLimitLeavesAnIdleDatabaseAlone(t *testing.T) {
	limit := NewLimit(2, 16)
	at := epoch
	for i := range 10_000 { // one at a time, faster and slower
		took := time.Duration(1+i%7) * time.Millisecond
		at = at.Add(took)
		limit.Done(Class(i%3), took, true, at)
	}
	if limit.Now() != 16 {
		t.Errorf("the limit is %d", limit.Now())
	}
}

func TestLimitKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := NewLimit(2, 16)
		at := epoch
		for range rapid.IntRange(1, 2000).Draw(t, "n") {
			at = at.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "pause")) * time.Millisecond)
			limit.Done(Class(rapid.IntRange(0, 2).Draw(t, "class")), time.Duration(rapid.IntRange(0, 5000).Draw(t, "took"))*time.Millisecond, rapid.Bool().Draw(t, "ok"), at)
			if n := limit.Now(); n < 1 || n > 16 {
				t.Fatalf("the limit is %d", n)
			}
		}
	})
}
