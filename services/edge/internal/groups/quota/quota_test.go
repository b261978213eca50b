package quota

import (
	"testing"
	"time"
)

func TestEachHasARateOfItsOwn(t *testing.T) {
	r, now := NewRate[string](10), time.Now()
	take := func(k string) (n int, wait time.Duration) {
		for ; n < 1000; n++ {
			if wait = r.Take(k, now); wait > 0 {
				return n, wait
			}
		}
		return n, 0
	}
	if n, wait := take("a"); n != 100 || wait != 100*time.Millisecond {
		t.Fatalf("%d at once, then wait %v", n, wait)
	}
	if n, _ := take("b"); n != 100 {
		t.Fatalf("%d of another", n)
	}
	now = now.Add(100 * time.Millisecond)
	if n, _ := take("a"); n != 1 {
		t.Fatalf("%d after a tenth of a second", n)
	}
	now = now.Add(2 * time.Second)
	if n, _ := take("a"); n != 20 {
		t.Fatalf("%d after 2 s", n)
	}
}

func TestWhoAsksNoMoreIsForgotten(t *testing.T) {
	r, now := NewRate[int](10), time.Now()
	for i := range 10_000 {
		now = now.Add(10 * time.Millisecond)
		if wait := r.Take(i, now); wait > 0 {
			t.Fatalf("%d waits %v", i, wait)
		}
	}
	if r.Len() > 1100 {
		t.Errorf("%d are known", r.Len())
	}
	if NewRate[int](0).Take(1, now) != 0 {
		t.Error("no rate has a wait")
	}
}

func TestNewcomersLeaveRoom(t *testing.T) {
	m := NewMemory(1600)
	m.Add(1199)
	if !m.Takes() || m.Full() || !m.Fits(401) || m.Fits(402) {
		t.Error("at 1,199 of 1,600 bytes")
	}
	m.Add(1)
	if m.Takes() {
		t.Error("somebody new is taken at three quarters")
	}
	m.Add(400)
	if !m.Full() || m.Eased() {
		t.Error("at the bound")
	}
	m.Add(-101)
	if !m.Eased() || m.Used() != 1499 {
		t.Error("below the bound")
	}
	if none := NewMemory(0); !none.Takes() || !none.Fits(1<<40) || none.Full() || !none.Eased() {
		t.Error("no bound is one")
	}
}

func TestEachHasAShare(t *testing.T) {
	s := NewShare[string](2)
	for _, k := range []string{"a", "a", "b", "", "", ""} {
		if !s.Fits(k) {
			t.Errorf("%q has no room", k)
		}
		s.Add(k)
	}
	if s.Fits("a") || !s.Fits("b") || !s.Fits("") || s.Len() != 2 {
		t.Errorf("a has room: %v, b: %v, who has no name: %v; %d are known", s.Fits("a"), s.Fits("b"), s.Fits(""), s.Len())
	}
	for _, k := range []string{"a", "", "b"} {
		s.Remove(k)
	}
	if !s.Fits("a") || s.Len() != 1 {
		t.Errorf("once one is gone, a has room: %v; %d are known", s.Fits("a"), s.Len())
	}
	if s.Remove("a"); s.Len() != 0 {
		t.Errorf("%d are known that have nothing", s.Len())
	}
	none := NewShare[int](0)
	for range 10 {
		none.Add(1)
	}
	if none.Remove(1); !none.Fits(1) || none.Len() != 0 {
		t.Error("no limit is one")
	}
}
