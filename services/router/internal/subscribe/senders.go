package subscribe

import (
	"maps"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// sendsFor is how long an edge that told a stream to go is the last choice: as long as a rebalance
// takes unless it is told otherwise. By then counts of connections say where there is room.
const sendsFor = 30 * time.Second

// senders are the edges that send clients away. A client on TCP goes to the addresses that GoAway
// names, which are of other edges; for a backend's stream, the same or one that is opened anew, the
// router remembers. An edge that was started again is another one. Its size is that of the edges
// that said GoAway within sendsFor.
type senders struct {
	mu    sync.Mutex
	until map[interest.Edge]time.Time
}

// note that the edge told a stream to go.
func (s *senders) note(e interest.Edge, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[interest.Edge]time.Time{}
	}
	maps.DeleteFunc(s.until, func(_ interest.Edge, until time.Time) bool { return !now.Before(until) })
	s.until[e] = now.Add(sendsFor)
}

// now says which edges send clients away at a time.
func (s *senders) now(at time.Time) func(interest.Edge) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := maps.Clone(s.until)
	return func(e interest.Edge) bool { return at.Before(until[e]) }
}
