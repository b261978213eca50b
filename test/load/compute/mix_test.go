package compute

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMixIsHalfShortAndHalfLong(t *testing.T) {
	var short, long atomic.Int64
	full := code.New(wirev1.Code_CODE_OVERLOADED, "full")
	m := mix{workers: 4, load: 0.8, shortWork: time.Millisecond, longWork: 20 * time.Millisecond, do: func(l bool, done func(time.Duration, error)) {
		if !l {
			short.Add(1)
			go done(time.Millisecond, nil)
		} else if long.Add(1)%2 == 0 {
			done(0, full)
		} else {
			done(0, nil)
		}
	}}
	o, err := m.run(t.Context(), 500*time.Millisecond, 1)
	if err != nil || o.failed != 0 {
		t.Fatal(o.failed, err)
	}
	// 1.5 s with the warm-up, 1,600 and 80 a second: what chance makes of it is within a half.
	if s, l := short.Load(), long.Load(); s < 1800 || s > 3000 || l < 60 || l > 180 || o.refused != int(l/2) {
		t.Errorf("%d short and %d long jobs, %d refused", s, l, o.refused)
	}
	if n := int64(len(o.short)); n == 0 || n >= short.Load() {
		t.Errorf("%d of %d short jobs count", n, short.Load())
	}
	m.do = func(l bool, done func(time.Duration, error)) { done(0, full) }
	if o, err := m.run(t.Context(), time.Millisecond, 1); err != nil || o.failed == 0 || o.fault == nil || o.refused == 0 {
		t.Error(o, err)
	}
}

// Jobs take about as long as they are to.
func TestJobOf(t *testing.T) {
	job, took, err := jobOf(20*time.Millisecond, 10)
	if err != nil || took < 2*time.Millisecond || took > 200*time.Millisecond {
		t.Fatalf("%d profiles take %v, %v", len(job.GetProfiles()), took, err)
	}
	unit := calibrate()
	began := cpu()
	s := &spin{left: 20_000, unit: unit}
	for done := false; !done; {
		done, _ = s.Step(time.Millisecond)
	}
	if ran := cpu() - began; ran < 10*time.Millisecond {
		t.Errorf("20 ms of work took %v", ran)
	}
}
