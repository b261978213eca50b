package dbgate

import (
	"fmt"
	"maps"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Status of a gate.
type Status struct {
	Breaker State
	Opened  uint64
	// Limit of small statements and reads together, as it is now; Busy and Waiting by class.
	Limit         int
	Busy, Waiting [classes]int
	// Waits and Waited count turns that were not had at once.
	Waits   uint64
	Waited  time.Duration
	Refused map[wirev1.Code]uint64
	Starved bool
}

// Classes of work, for whoever reports a Status.
func Classes() []Class { return []Class{Vital, Small, Reads} }

// Status now.
func (g *Gate) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{
		Breaker: g.breaker.State(), Opened: g.breaker.Opened(), Limit: g.allowed(g.cfg.Now()), Waits: g.waits, Waited: g.waitTime,
		Refused: maps.Clone(g.refused), Starved: g.poolExhausted,
	}
	for c := range g.bulkheads {
		s.Busy[c], s.Waiting[c] = g.bulkheads[c].active, len(g.bulkheads[c].waiting)
	}
	return s
}

// Away says why work would be refused now: the breaker is not closed. Nil: it is tried.
func (g *Gate) Away() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.State() == Closed {
		return nil
	}
	return g.errUnavailable()
}

// Check names the state for /readyz.
func (g *Gate) Check() error {
	s := g.Status()
	switch {
	case s.Breaker != Closed:
		return fmt.Errorf("the breaker is %s: calls are refused until the database answers again", s.Breaker)
	case s.Starved:
		return fmt.Errorf("no connection of the pool becomes free: %v busy, %v waiting", s.Busy, s.Waiting)
	}
	return nil
}
