package upstream

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// After a connection the edge waits for the first router, and for others that beat a little later.
func TestRoutersAreWaitedFor(t *testing.T) {
	var r routers
	r.init(1)
	begin := time.Unix(1000, 0)
	expect := func(after time.Duration, want bool) {
		t.Helper()
		if got := r.unheard(begin.Add(after)); got != want {
			t.Errorf("after %v with %d routers: may others exist: %v", after, r.Len(), got)
		}
	}
	expect(0, false)
	r.connected(begin)
	expect(othersGrace-1, true)
	expect(othersGrace, true)
	expect(routerGrace-1, true)
	expect(routerGrace, false)
	r.Take(begin, &routerlink.Frame{Router: []byte("r1"), Incarnation: 1, EdgeIncarnation: 1}, 1)
	expect(othersGrace-1, true)
	expect(othersGrace, false)
}

// Other goroutines see the routers as of the last publish.
func TestLiveRoutersArePublished(t *testing.T) {
	var r routers
	r.init(1)
	if got := r.current(); len(got) != 0 {
		t.Errorf("%v before any router was heard", got)
	}
	r.Take(time.Unix(1000, 0), &routerlink.Frame{Router: []byte("r1"), Incarnation: 7, EdgeIncarnation: 1}, 1)
	if got := r.current(); len(got) != 0 {
		t.Errorf("%v before they were published", got)
	}
	r.publish()
	if got := r.current(); len(got) != 1 || got[0] != (routerlink.Live{ID: "r1", Incarnation: 7}) {
		t.Errorf("%v are published", got)
	}
}
