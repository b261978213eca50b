package upstream

import (
	"errors"
	"fmt"
	"testing"

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
		m.table.Announce() // and all of that is lost
	})
	w.router.WaitHolds(filters...)
	edgetest.WaitFor(t, "a snapshot", func() error {
		if m.stats.Snapshots.Load() == 0 {
			return errors.New("none was sent")
		}
		return nil
	})
}
