package window

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const aim = 10 * time.Millisecond

var start = time.Unix(1_000_000, 0)

// play is a server that does one thing after the other, some time away, and a producer with a
// window before it.
type play struct {
	w     *Window
	take  time.Duration // what a message costs the server
	away  time.Duration // how long a message and its answer travel
	now   time.Time
	due   time.Time
	free  time.Time // of the server
	seq   int
	queue []flight

	sent, refused [10]int
	waits         []time.Duration
}

type flight struct{ sent, answered time.Time }

func newPlay(take time.Duration) *play {
	return &play{w: New(aim, 4096), take: take, away: time.Millisecond, now: start, due: start, free: start}
}

// offer has so many messages a second come for a time, of all priorities in turn. What was counted
// before is forgotten.
func (p *play) offer(perSecond float64, d time.Duration) {
	p.sent, p.refused, p.waits = [10]int{}, [10]int{}, nil
	every := time.Duration(float64(time.Second) / perSecond)
	for end := p.now.Add(d); p.now.Before(end); p.due = p.due.Add(every) {
		p.now = p.due
		for len(p.queue) > 0 && !p.queue[0].answered.After(p.now) {
			f := p.queue[0]
			p.queue = p.queue[1:]
			p.waits = append(p.waits, f.answered.Sub(f.sent))
			p.w.Answered(f.answered, f.answered.Sub(f.sent), false)
		}
		p.seq++
		priority := uint32(p.seq % 10)
		if !p.w.Admits(len(p.queue), priority) {
			p.refused[priority]++
			continue
		}
		p.sent[priority]++
		if p.free.Before(p.now) {
			p.free = p.now
		}
		p.free = p.free.Add(p.take)
		p.queue = append(p.queue, flight{p.now, p.free.Add(p.away)})
	}
}

func (p *play) at(q float64) time.Duration {
	slices.Sort(p.waits)
	return p.waits[int(q*float64(len(p.waits)-1))]
}

func sum(of [10]int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

func TestNothingIsRefusedWhileAnswersComeInTime(t *testing.T) {
	for _, take := range []time.Duration{20 * time.Microsecond, 500 * time.Microsecond} {
		p := newPlay(take)
		p.offer(0.5*float64(time.Second/take), 2*time.Second)
		if n := sum(p.refused); n > 0 {
			t.Errorf("%v for each: %d refused", take, n)
		}
	}
}

// Three times as much as there is time for keeps the other side busy, and answers wait about as
// long as they should.
func TestOverloadKeepsTheOtherSideBusyAndAnswersInTime(t *testing.T) {
	for _, take := range []time.Duration{20 * time.Microsecond, 500 * time.Microsecond} {
		t.Run(take.String(), func(t *testing.T) { overload(t, take) })
	}
}

func overload(t *testing.T, take time.Duration) {
	capacity := float64(time.Second / take)
	p := newPlay(take)
	p.offer(0.5*capacity, time.Second)
	p.offer(3*capacity, time.Second) // the limit is found
	p.offer(3*capacity, 2*time.Second)
	if n := float64(sum(p.sent)); n < 0.97*2*capacity {
		t.Errorf("%.0f sent, %.0f could be", n, 2*capacity)
	}
	if p50, p99 := p.at(.5), p.at(.99); p50 < aim/2 || p99 > 2*aim {
		t.Errorf("waited %v, %v of the last hundredth", p50, p99)
	}
	for low := range 9 {
		if p.sent[low] > p.sent[low+1]+p.sent[low+1]/10+10 {
			t.Errorf("%d of priority %d were sent and %d of priority %d", p.sent[low], low, p.sent[low+1], low+1)
		}
	}
	p.take *= 5 // the other side becomes slow
	p.offer(3*capacity, time.Second)
	p.offer(3*capacity, 2*time.Second)
	if n := float64(sum(p.sent)); n < 0.97*2*capacity/5 {
		t.Errorf("slow: %.0f sent, %.0f could be", n, 2*capacity/5)
	}
	if p99, most := p.at(.99), max(2*aim, (least+1)*p.take+2*p.away); p99 > most {
		t.Errorf("slow: the last hundredth waited %v", p99)
	}
	p.take /= 5
	p.offer(0.8*capacity, 2*time.Second)
	p.offer(0.8*capacity, time.Second)
	if n := sum(p.refused); n > 0 {
		t.Errorf("%d refused after it was over", n)
	}
}

func TestTheOtherSidesRefusalsMakeItSmaller(t *testing.T) {
	w := New(aim, 1000)
	before, now := w.Limit(), start
	for range 1000 {
		w.Admits(w.Limit()+1, 9)
		now = now.Add(time.Millisecond)
		w.Answered(now, time.Millisecond, true)
	}
	if w.Limit() > before/8 {
		t.Errorf("from %d to %d", before, w.Limit())
	}
}

func TestItIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(-1, 2000).Draw(t, "most")
		w, now := New(aim, most), start
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(-1e6, 1e7).Draw(t, "passed")))
			w.Answered(now, time.Duration(rapid.Int64Range(-1, 1e9).Draw(t, "waited")), rapid.Bool().Draw(t, "late"))
			w.Admits(rapid.IntRange(0, 3000).Draw(t, "unanswered"), rapid.Uint32().Draw(t, "priority"))
			if n := w.Limit(); n < 1 || n > max(most, 1) {
				t.Fatalf("limit %d of %d", n, most)
			}
		}
		if !w.Admits(0, 0) {
			t.Fatal("nothing is unanswered, and nothing may be sent")
		}
		if w.Admits(max(most, 1), 9) {
			t.Fatal("more than may be sent")
		}
	})
}

func BenchmarkAdmits(b *testing.B) {
	w := New(aim, 1000)
	b.ReportAllocs()
	for b.Loop() {
		w.Admits(1000, 5)
	}
}
