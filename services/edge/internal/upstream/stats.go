package upstream

import (
	"sync"
	"sync/atomic"

	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// Stats of a mesh may be read at any time.
type Stats struct {
	// Filters and topics announced now.
	Filters atomic.Int64
	// Frames taken, with Deliveries in them; BadFrames can't be read, ForeignFrames were meant for
	// another incarnation.
	Frames, Deliveries, BadFrames, ForeignFrames atomic.Uint64
	// Broadcasts are frames for every edge that were taken; RepeatedFrames had come before, or
	// after later ones. ShedFrames were let go because too much waited.
	Broadcasts, RepeatedFrames, ShedFrames atomic.Uint64
	// Announcements and Snapshots sent; Unsent could not be because there is no NATS.
	Announcements, Snapshots, Unsent atomic.Uint64
	// WithoutRouter joins were answered while there was no router; Laggards are routers that joins
	// did not wait for to the end.
	WithoutRouter, Laggards atomic.Uint64
	// RefusedJoins (OVERLOADED) and FailedJoins, those included.
	RefusedJoins, FailedJoins atomic.Uint64
	// LargeFilters match too many topics to be followed one by one.
	LargeFilters atomic.Uint64
	// HeadErrors are questions about heads that the store did not answer, Late topics were behind
	// it.
	HeadErrors, Late atomic.Uint64
	RefusedReads     atomic.Uint64
	// KeptReads were answered by what had been read for others.
	KeptReads atomic.Uint64
	// RefusedRuns found a loop's mailbox full; the ephemeral messages in them are lost and
	// Overloaded.
	RefusedRuns, Overloaded atomic.Uint64

	// RefusedRequests came while too many were being answered.
	RefusedRequests atomic.Uint64
	requests        atomic.Int64

	mu     sync.Mutex
	checks map[string]uint64
}

func (s *Stats) check(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checks == nil {
		s.checks = map[string]uint64{}
	}
	s.checks[reason]++
}

// checkReasons are all reasons for which heads are compared.
var checkReasons = []string{
	"apart", "backstop", "gap", "laggard", "policies", "router", "unknown", "where",
	string(routerlink.Hole), string(routerlink.Incarnation), string(routerlink.Silent), string(routerlink.Learned),
}

// Checks of heads so far, by reason.
func (s *Stats) Checks() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]uint64, len(checkReasons))
	for _, reason := range checkReasons {
		// 0 is told too: a counter that appears with its first event hides that event from rates
		out[reason] = s.checks[reason]
	}
	return out
}
