package upstream

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

func TestALargeSnapshotGoesPartByPart(t *testing.T) {
	w := newWorld(t)
	m, _ := w.edge("e1", 1)
	edgetest.WaitFor(t, "a router", func() error { return hasRouter(m) })
	filters := make([]string, 15_000)
	for i := range filters {
		filters[i] = fmt.Sprintf("cursor/%d/inbox-of-someone", i)
	}
	m.do(t.Context(), func() {
		for _, f := range filters {
			m.table.Join(m.now, 0, f)
		}
		for _, due := m.table.Due(); due; _, due = m.table.Due() {
			m.table.Announce() // and all of that is lost
		}
	})
	w.router.WaitHolds(filters...)
	edgetest.WaitFor(t, "a snapshot", func() error {
		if m.stats.Snapshots.Load() == 0 {
			return errors.New("none was sent")
		}
		return nil
	})
}

// A router that asks again ends what it was being sent, but not a moment after that began. What was
// sent is forgotten after a minute; what is being sent is not.
func TestOneSnapshotOfARouterAtATime(t *testing.T) {
	s, begin := snapshots{}, time.Unix(1000, 0)
	if !s.endLast(begin, "r1") {
		t.Fatal("the first one may not begin")
	}
	first, _ := s.begin(t.Context(), begin, "r1")
	if s.endLast(begin.Add(snapshotEvery-1), "r1") || first.Err() != nil {
		t.Error("a second one may begin at once")
	}
	if !s.endLast(begin.Add(snapshotEvery), "r1") || first.Err() == nil {
		t.Error("the first one goes on beside the second")
	}
	_, end := s.begin(t.Context(), begin, "r2")
	s.forget(begin.Add(time.Minute))
	if len(s) != 2 {
		t.Errorf("after a minute %v are left", s)
	}
	s.forget(begin.Add(time.Minute + 1))
	if _, sent := s["r1"]; sent || len(s) != 1 {
		t.Errorf("after more than a minute %v are left", s)
	}
	end()
}
