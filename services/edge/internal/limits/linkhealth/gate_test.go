package linkhealth

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = int64(time.Second)

// closes asks n times, and says how many may be closed and why the others not.
func closes(g *Gate, now int64, n int) (closed int, why Reason) {
	for range n {
		if r := g.Close(now); r != None {
			why = r
		} else {
			closed++
		}
	}
	return closed, why
}

func TestOnePercentInTenSeconds(t *testing.T) {
	g := NewGate(2)
	g.Holds(0, 1500)
	g.Holds(1, 999)
	now := 100 * second
	if n, why := closes(g, now, 100); n != 24 || why != Capped {
		t.Fatalf("%d of 2,499 are closed, then %v", n, why)
	}
	if n, _ := closes(g, now+9*second, 100); n != 0 {
		t.Fatalf("%d more after 9 s", n)
	}
	if n, why := closes(g, now+12*second, 100); n != 24 || why != Capped {
		t.Fatalf("%d after 12 s, then %v", n, why)
	}
}

func TestAFewConnectionsHaveOneClosed(t *testing.T) {
	g := NewGate(1)
	g.Holds(0, 3)
	g.Turned(second)
	if n, why := closes(g, second, 2); n != 1 || why != Capped {
		t.Fatalf("%d are closed, then %v", n, why)
	}
	g.Turned(2 * second)
	if n, why := closes(g, 20*second, 2); n != 0 || why != Together {
		t.Fatalf("two of three turned: %d are closed, then %v", n, why)
	}
	if n, _ := closes(g, 70*second, 2); n != 1 {
		t.Fatalf("%d are closed a minute later", n)
	}
}

func TestNothingIsClosedWhileAnyLoopIsLate(t *testing.T) {
	g := NewGate(2)
	g.Holds(0, 1000)
	g.Late(5 * second)
	for now, want := range map[int64]Reason{5 * second: Late, 14 * second: Late, 15 * second: None} {
		if got := g.Close(now); got != want {
			t.Errorf("at %d s: %v, want %v", now/second, got, want)
		}
	}
}

func TestNothingIsClosedWhileManyTurnTogether(t *testing.T) {
	g := NewGate(4)
	for i := range uint16(4) {
		g.Holds(i, 250)
	}
	now := 1000 * second
	for range 50 { // 5 %, over half a minute
		now += second / 2
		g.Turned(now)
	}
	if why := g.Close(now); why != None {
		t.Fatalf("with 5 %%: %v", why)
	}
	g.Turned(now)
	if why := g.Close(now); why != Together {
		t.Fatalf("with more: %v", why)
	}
	if why := g.Close(now + 30*second); why != Together {
		t.Fatalf("half a minute later: %v", why)
	}
	if why := g.Close(now + 66*second); why != None {
		t.Fatalf("a minute later: %v", why)
	}
}

// However loops ask, from however many goroutines: in any ten seconds 1 % at most is closed.
func TestTheCapHoldsAtAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewGate(1)
		all := rapid.Int64Range(1, 3000).Draw(t, "connections")
		g.Holds(0, all)
		most := max(all/100, 1)
		now, times := second, []int64(nil)
		for range rapid.IntRange(1, 200).Draw(t, "asked") {
			now += rapid.Int64Range(0, 3*second).Draw(t, "later")
			if g.Close(now) == None {
				times = append(times, now)
			}
		}
		for i := int(most); i < len(times); i++ {
			if d := times[i] - times[i-int(most)]; d < int64(cappedFor) {
				t.Fatalf("%d closed within %v", most+1, time.Duration(d))
			}
		}
	})
	g := NewGate(8)
	for i := range uint16(8) {
		g.Holds(i, 1000)
	}
	var closed atomic.Int64
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for k := range int64(2000) {
				n, _ := closes(g, 50*second+k*second/1000+i, 1) // two seconds
				closed.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if n := closed.Load(); n > 80 || n == 0 {
		t.Fatalf("%d of 8,000 were closed", n)
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, us := range []uint32{0, 1000, 1001, 6_400_000, 6_400_001} {
		h.Add(us)
	}
	if n := len(h.Counts); h.Counts[0] != 2 || h.Counts[1] != 1 || h.Counts[n-2] != 1 || h.Counts[n-1] != 1 || h.Sum != 12_802_002 {
		t.Fatalf("%+v", h)
	}
}
