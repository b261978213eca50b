package routerlink

import (
	"testing"
	"time"
)

// A router with a fixed id whose clock went back is a new process like any other, and stays so
// however long it lives.
func TestARouterMayRestartWithAnyIncarnation(t *testing.T) {
	s := New(edge)
	s.Take(start, decoded(batch("r", 1_700_000_000_000_000, 9)), 0)
	if v := s.Take(start.Add(time.Second), decoded(beat("r", 5, 0, 3)), 0); v.Foreign || v.Missed != Incarnation || !v.Applied {
		t.Fatalf("its first frame: %+v", v)
	}
	if v := s.Take(start.Add(time.Second), decoded(batch("r", 5, 1)), 0); v != (Verdict{}) {
		t.Errorf("its first batch: %+v", v)
	}
	if v := s.Take(start.Add(time.Second), decoded(batch("r", 1_700_000_000_000_000, 10)), 0); !v.Foreign {
		t.Errorf("what the process before it said late: %+v", v)
	}
	if live := s.Live(); len(live) != 1 || live[0].Incarnation != 5 {
		t.Errorf("live: %v", live)
	}
}

// It fell silent first; then it is told from its return, and neither process brings the other back.
func TestARouterThatFellSilentMayRestartWithAnyIncarnation(t *testing.T) {
	s := New(edge)
	s.Take(start, decoded(beat("r", 9, 4, 0)), 0)
	s.Expire(start.Add(SilentAfter))
	if v := s.Take(start.Add(SilentAfter), decoded(beat("r", 3, 0, 0)), 0); v.Foreign || v.Missed != Incarnation {
		t.Fatalf("its first frame: %+v", v)
	}
	if v := s.Take(start.Add(SilentAfter), decoded(batch("r", 9, 5)), 0); !v.Foreign {
		t.Errorf("what the process before it said late: %+v", v)
	}
}

// A goodbye is for good.
func TestWhatFollowsAGoodbyeIsDropped(t *testing.T) {
	s := New(edge)
	bye := beat("r", 9, 0, 0)
	bye.Leaving = true
	s.Take(start, decoded(bye), 0)
	if v := s.Take(start.Add(time.Hour), decoded(batch("r", 9, 1)), 0); !v.Foreign || s.Len() != 0 {
		t.Errorf("%+v with %d live", v, s.Len())
	}
	if v := s.Take(start.Add(time.Hour), decoded(beat("r", 2, 0, 0)), 0); v.Foreign || s.Len() != 1 {
		t.Errorf("the next process: %+v with %d live", v, s.Len())
	}
}

// Of two routers with one id the one that came last is heard, and they don't take turns. When it
// ends, the other is heard again.
func TestOfTwoRoutersWithOneIDOneIsHeard(t *testing.T) {
	s := New(edge)
	now := start
	s.Take(now, decoded(beat("r", 9, 0, 0)), 0)
	s.Take(now, decoded(beat("r", 3, 0, 0)), 0)
	for range 100 {
		now = now.Add(500 * time.Millisecond)
		first, second := s.Take(now, decoded(beat("r", 9, 0, 0)), 0), s.Take(now, decoded(beat("r", 3, 0, 0)), 0)
		if !first.Foreign || second != (Verdict{}) {
			t.Fatalf("after %s: %+v and %+v", now.Sub(start), first, second)
		}
	}
	now = now.Add(SilentAfter)
	if v := s.Take(now, decoded(beat("r", 9, 0, 0)), 0); v.Foreign || v.Missed != Incarnation {
		t.Errorf("when the other is silent: %+v", v)
	}
	if live := s.Live(); len(live) != 1 || live[0].Incarnation != 9 {
		t.Errorf("live: %v", live)
	}
}
