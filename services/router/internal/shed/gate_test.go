package shed

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Between two priorities a share of the topics passes that shrinks with the pressure, and those
// that pass a higher one pass a lower one too.
func TestTopicsOfOnePriorityAreRefusedLittleByLittle(t *testing.T) {
	passing := func(pressure float64, priority uint32) map[string]bool {
		all := map[string]bool{}
		for i := range 1000 {
			if topic := strconv.Itoa(i); Passes(pressure, priority, topic) {
				all[topic] = true
			}
		}
		return all
	}
	for _, c := range []struct {
		pressure    float64
		priority    uint32
		least, most int
	}{
		{0, 0, 1000, 1000},
		{0.499, 0, 1000, 1000},
		{0.525, 0, 420, 580},
		{0.525, 1, 1000, 1000},
		{0.55, 0, 0, 0},
		{0.7125, 3, 0, 0},
		{0.7125, 4, 680, 820},
		{0.7125, 5, 1000, 1000},
		{0.96, 9, 730, 870},
		{0.96, 200, 730, 870},
		{1, 9, 0, 0},
		{2, 9, 0, 0},
	} {
		if n := len(passing(c.pressure, c.priority)); n < c.least || n > c.most {
			t.Errorf("at %v %d of 1,000 topics of priority %d pass, want %d to %d", c.pressure, n, c.priority, c.least, c.most)
		}
	}
	few, more := passing(0.54, 0), passing(0.51, 0)
	for topic := range few {
		if !more[topic] {
			t.Errorf("%s passes under more pressure alone", topic)
		}
	}
}

// lowest is the lowest priority that passes; 10: none.
func lowest(g *Gate, pressure float64) int {
	for p := range uint32(Priorities) {
		if g.Admits(pressure, p) {
			return int(p)
		}
	}
	return Priorities
}

func TestLowPrioritiesAreRefusedFirst(t *testing.T) {
	var g Gate
	for _, step := range []struct {
		pressure float64
		lowest   int
	}{
		{0, 0},
		{0.49, 0},
		{0.5, 1},
		{0.54, 1},
		{0.56, 2},
		{0.71, 5},
		{0.91, 9},
		{0.96, 10},
		{3, 10},
		{0.9, 10},
		{0.84, 9},
		{0.80, 9},
		{0.69, 6},
		{0.5, 3},
		{0.41, 1},
		{0.45, 1},
		{0.39, 0},
		{0.45, 0},
		{0, 0},
	} {
		if got := lowest(&g, step.pressure); got != step.lowest {
			t.Errorf("at %v priorities from %d on pass, want %d", step.pressure, got, step.lowest)
		}
	}
	if g.Admits(0.97, 200) {
		t.Error("a priority beyond all is more than the highest")
	}
}

// A pressure that trembles by less than the slack moves nothing but once.
func TestTremblingMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Gate
		base := rapid.Float64Range(0, 1).Draw(t, "base")
		g.Admits(base+slack/2, 0)
		high := g.Level()
		for range 50 {
			g.Admits(base+rapid.Float64Range(-slack/2+0.001, slack/2).Draw(t, "tremble"), 0)
			if g.Level() != high {
				t.Fatalf("level %d became %d", high, g.Level())
			}
		}
	})
}

func TestTheTimeToWaitGrowsAndIsJittered(t *testing.T) {
	mean := func(pressure float64) (sum time.Duration) {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			w := Wait(pressure)
			sum += w / 1000
			least, most = min(least, w), max(most, w)
		}
		if most < 2*least {
			t.Errorf("at %v from %v to %v: that is no jitter", pressure, least, most)
		}
		return sum
	}
	low, middle, high := mean(0.5), mean(0.75), mean(1)
	if low < 25*time.Millisecond || low > 75*time.Millisecond || middle < 2*low || high < 2*middle || high > 3*time.Second {
		t.Errorf("%v, %v, %v", low, middle, high)
	}
	if w := Wait(100); w > 3*time.Second {
		t.Errorf("at most %v", w)
	}
}

func BenchmarkAdmits(b *testing.B) {
	var g Gate
	b.ReportAllocs()
	for b.Loop() {
		g.Admits(0.6, 5)
	}
}
