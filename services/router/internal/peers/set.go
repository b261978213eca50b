// Package peers keeps which routers are alive: each sends beats over NATS, and receives those of
// the others and its own.
package peers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// beatEvery is how often a router sends a beat.
	beatEvery = 500 * time.Millisecond
	// goneAfter is after how long without a beat a router counts as gone.
	goneAfter = 3 * time.Second
	// ownBeatMissedAfter: a router that has not received its own beats for so long assumes that the
	// fault is on its side, and not that the others are gone.
	ownBeatMissedAfter = 3 * beatEvery
	// maxRouters is how many routers are kept; beats of further ones are ignored.
	maxRouters = 1024
)

// Router is one live router, as its beats describe it.
type Router struct {
	ID string
	// Incarnation of its process (package incarnation).
	Incarnation uint64
	// Address of the gRPC API, HTTP of health and metrics: host:port.
	Address, HTTP string
	// Version of the program.
	Version string
}

// Set is the set of live routers. It does no I/O and is not safe for concurrent use; the zero Set
// is not usable.
//
// A router receives its own beats as others do. While it does not, because NATS is away, because it
// was cut off, or because the process was stopped for a while, it can't know which routers are
// silent: the set stays as it is, and every router has a full goneAfter from when this one receives
// its own beats again.
type Set struct {
	self   Router
	others map[string]*other
	// processes of routers that have ended, and others that have this one's id
	formerProcesses incarnation.Memory
	ownBeatAt       time.Time // when it last received its own beat
	changed         bool
}

type other struct {
	Router
	heardAt time.Time
}

// NewSet makes a set of one router.
func NewSet(now time.Time, self Router) *Set {
	return &Set{self: self, others: map[string]*other{}, ownBeatAt: now, changed: true}
}

// Observe takes a beat. It reports whether a router has started that may not know this one yet.
func (s *Set) Observe(now time.Time, m *meshv1.RouterBeat) (begun bool) {
	id, life := m.GetRouterId(), m.GetRouterIncarnation()
	if id == s.self.ID {
		if life == s.self.Incarnation {
			s.receiveOwnBeat(now)
		} else if !s.formerProcesses.Late(now, id, life, false, goneAfter) {
			s.formerProcesses.Replaced(now, id, life)
		}
		return false
	}
	was := s.others[id]
	another := was == nil || was.Incarnation != life
	switch {
	case another && s.formerProcesses.Late(now, id, life, was == nil || now.Sub(was.heardAt) > goneAfter, goneAfter):
		// sent by a former process
		return false
	case m.GetLeaving():
		s.formerProcesses.Departed(now, id, life)
		if !another {
			delete(s.others, id)
			s.changed = true
		}
		return false
	case was == nil && len(s.others) >= maxRouters-1:
		return false
	}
	is := Router{ID: id, Incarnation: life, Address: m.GetAddress(), HTTP: m.GetHttpAddress(), Version: m.GetVersion()}
	s.changed = s.changed || was == nil || was.Router != is
	if was != nil && another {
		s.formerProcesses.Replaced(now, id, was.Incarnation)
	}
	s.others[id] = &other{is, now}
	return another
}

// Twin reports whether another process has the id of this router.
func (s *Set) Twin(now time.Time) bool {
	return slices.Contains(s.formerProcesses.Twins(now), s.self.ID)
}

func (s *Set) receiveOwnBeat(now time.Time) {
	if s.missesOwnBeats(now) {
		for _, o := range s.others {
			o.heardAt = now
		}
	}
	s.ownBeatAt = now
}

func (s *Set) missesOwnBeats(now time.Time) bool { return now.Sub(s.ownBeatAt) > ownBeatMissedAfter }

// Tick removes routers that are silent. It is called several times a second.
func (s *Set) Tick(now time.Time) {
	if s.missesOwnBeats(now) {
		return
	}
	for id, o := range s.others {
		if now.Sub(o.heardAt) > goneAfter {
			s.formerProcesses.Quiet(now, id, o.Incarnation)
			delete(s.others, id)
			s.changed = true
		}
	}
}

// Changed reports whether Live may return something else than when Changed was last called.
func (s *Set) Changed() bool {
	defer func() { s.changed = false }()
	return s.changed
}

// Live returns every live router in the order of ids, this one included.
func (s *Set) Live() []Router {
	live := []Router{s.self}
	for o := range maps.Values(s.others) {
		live = append(live, o.Router)
	}
	slices.SortFunc(live, func(a, b Router) int { return cmp.Compare(a.ID, b.ID) })
	return live
}
