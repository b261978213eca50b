package incarnation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const silence = 2 * time.Second

var begin = time.Unix(1_000_000, 0)

func TestNewOnesAreNeverZeroAndDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for range 1000 {
		n := New()
		if n == 0 || n > 1<<63 || seen[n] {
			t.Fatalf("%d", n)
		}
		seen[n] = true
	}
}

func TestWhatIsLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		over  func(m *Memory)
		after time.Duration
		alone bool
		want  bool
	}{
		{"nothing is known", func(*Memory) {}, 0, true, false},
		{"replaced", func(m *Memory) { m.Replaced(begin, "a", 1) }, time.Hour, false, true},
		{"replaced just now by one that is gone", func(m *Memory) { m.Replaced(begin, "a", 1) }, silence - 1, true, true},
		{"replaced long ago by one that is gone", func(m *Memory) { m.Replaced(begin, "a", 1) }, silence, true, false},
		{"said goodbye", func(m *Memory) { m.Departed(begin, "a", 1) }, time.Hour, true, true},
		{"replaced, then said goodbye", func(m *Memory) { m.Replaced(begin, "a", 1); m.Departed(begin, "a", 1) }, time.Hour, true, true},
		{"silent, and back", func(m *Memory) { m.Quiet(begin, "a", 1) }, 0, true, false},
		{"silent, and another came", func(m *Memory) { m.Quiet(begin, "a", 1) }, time.Hour, false, true},
		{"another id", func(m *Memory) { m.Replaced(begin, "b", 1) }, 0, false, false},
		{"another process", func(m *Memory) { m.Replaced(begin, "a", 2) }, 0, false, false},
		{"one of the last", func(m *Memory) {
			for i := range uint64(mostFormer) {
				m.Replaced(begin, "a", i+1)
			}
		}, 0, false, true},
		{"before the last", func(m *Memory) {
			for i := range uint64(mostFormer + 1) {
				m.Replaced(begin, "a", i+1)
			}
		}, 0, false, false},
	} {
		m := &Memory{}
		c.over(m)
		if got := m.Late(begin.Add(c.after), "a", 1, c.alone, silence); got != c.want {
			t.Errorf("%s: late %v, want %v", c.name, got, c.want)
		}
	}
}

// One that came back may be replaced again.
func TestOneThatCameBackIsNotOver(t *testing.T) {
	m := &Memory{}
	m.Quiet(begin, "a", 1)
	m.Late(begin, "a", 1, true, silence)
	if m.Late(begin, "a", 1, false, silence) {
		t.Error("it is over still")
	}
}

func TestTwins(t *testing.T) {
	m := &Memory{}
	m.Replaced(begin, "a", 1)
	m.Replaced(begin, "b", 1)
	at := func(d time.Duration, ids ...string) {
		t.Helper()
		for _, id := range ids {
			m.Late(begin.Add(d), id, 1, false, silence)
		}
	}
	want := func(d time.Duration, ids ...string) {
		t.Helper()
		if got := m.Twins(begin.Add(d)); !slices.Equal(got, ids) {
			t.Errorf("after %s: %v, want %v", d, got, ids)
		}
	}
	at(time.Second, "a", "b")
	want(time.Second)
	at(twinAfter, "b")
	want(twinAfter, "b")
	want(twinAfter+twinFor, "b")
	want(twinAfter + twinFor + 1)
}

func TestTheMemoryIsBounded(t *testing.T) {
	m := &Memory{}
	for i := range 3 * mostIDs {
		for n := range uint64(2 * mostFormer) {
			m.Replaced(begin, fmt.Sprint(i), n)
		}
	}
	if len(m.ids) > mostIDs || len(m.ids["0"]) > mostFormer || cap(m.ids[fmt.Sprint(3*mostIDs-1)]) > 2*mostFormer {
		t.Errorf("%d ids", len(m.ids))
	}
}
