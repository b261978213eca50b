package upstream

import (
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// After a connection to NATS routers may exist that were not heard yet: they beat every 500 ms, and
// at once after applying an announcement, so that the others are heard soon after the first.
const (
	routerGrace = 700 * time.Millisecond
	othersGrace = 150 * time.Millisecond
)

// routers are those that are alive, and until when others may exist that were not heard yet. The
// mesh's goroutine owns them, but for current.
type routers struct {
	*routerlink.Set

	published   atomic.Pointer[[]routerlink.Live] // for other goroutines
	graceUntil  time.Time                         // no router may have been heard yet
	othersUntil time.Time                         // some may not have been
}

func (r *routers) init(edgeIncarnation uint64) {
	r.Set = routerlink.New(edgeIncarnation)
	r.published.Store(&[]routerlink.Live{})
}

// connected begins to wait for routers to be heard.
func (r *routers) connected(now time.Time) {
	r.graceUntil, r.othersUntil = now.Add(routerGrace), now.Add(othersGrace)
}

// unheard reports whether routers may exist that were not heard yet.
func (r *routers) unheard(now time.Time) bool {
	return now.Before(r.othersUntil) || r.Len() == 0 && now.Before(r.graceUntil)
}

// publish has current return the live routers of now.
func (r *routers) publish() {
	live := r.Live()
	r.published.Store(&live)
}

// current are the live routers, as far as is known. Any goroutine may ask.
func (r *routers) current() []routerlink.Live { return *r.published.Load() }
