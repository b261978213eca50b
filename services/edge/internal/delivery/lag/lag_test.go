package lag

import (
	"testing"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// loop counts who is asked for; every third track stands still.
type loop struct {
	now   int64
	asked int
}

func (l *loop) Now() int64 { return l.now }

func (l *loop) Stands(*state.Track) bool {
	l.asked++
	return l.asked%3 == 0
}

// A census looks at no more than a slice of the tracks in one step, and another one begins a second
// after it has ended, however long it took.
func TestACensusIsSliced(t *testing.T) {
	const n = 3*Slice + 5
	l, jobs := &loop{now: 1}, walk.Jobs{}
	list := New(l, &jobs)
	topic := &state.Topic{}
	for i := range n {
		list.Add(&state.Track{Topic: topic, TrackMore: state.NoTrackMore, Behind: i != 7})
	}
	if n := len(list.Tracks()); n != 3*Slice+4 {
		t.Fatalf("%d are listed: one that is level is, or one that is behind is not", n)
	}
	topic.Last = 10
	if !list.Look(l.now) || jobs.Len() != 1 {
		t.Fatalf("it is time, and %d jobs wait", jobs.Len())
	}
	for before := 0; jobs.Len() > 0; before = l.asked {
		l.now += int64(Every)
		if list.Look(l.now) {
			t.Fatal("another census begins while one is under way")
		}
		if jobs.Step(); l.asked-before > Slice {
			t.Fatalf("%d were looked at in one slice", l.asked-before)
		}
	}
	if f := list.Figures(); f != (Figures{Behind: n - 1, Standing: (n - 1) / 3, Lag: 10 * (n - 1), Longest: 10}) {
		t.Fatalf("it found %+v", f)
	}
	if list.Look(l.now + int64(Every) - 1) {
		t.Fatal("the next census begins too early")
	}
	if !list.Look(l.now + int64(Every)) {
		t.Fatal("the next census does not begin")
	}
}
