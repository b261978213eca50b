// Package peers knows which routers are alive: each beats over NATS, and hears the others and
// itself.
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
	// beatEvery is how often a router says that it lives.
	beatEvery = 500 * time.Millisecond
	// goneAfter is how long a router may be silent.
	goneAfter = 3 * time.Second
	// deafAfter is how long a router may not hear itself before it takes what it does not hear from
	// others for its own trouble.
	deafAfter = 3 * beatEvery
	// most is how many routers are known; what others say is not heard.
	most = 1024
)

// Router is one live router, as it said itself.
type Router struct {
	ID string
	// Incarnation of its process (package incarnation).
	Incarnation uint64
	// Address of the gRPC API, HTTP of health, metrics and pprof: host:port.
	Address, HTTP string
	// Version of the program.
	Version string
}

// Set is the routers that live. It does no I/O and is not safe for concurrent use; the zero Set is
// not usable.
//
// A router hears its own beats as others do. While it does not, whether because NATS is away,
// because it was cut off, or because the process stood still, it can't tell who is silent: the set
// stays as it is, and everybody has a full goneAfter from when it hears itself again.
type Set struct {
	self   Router
	others map[string]*other
	// processes of routers that are over, and others that have this one's id
	past    incarnation.Memory
	heard   time.Time // when it heard itself
	changed bool
}

type other struct {
	Router
	heard time.Time
}

// NewSet makes the set of a router that is alone.
func NewSet(now time.Time, self Router) *Set {
	return &Set{self: self, others: map[string]*other{}, heard: now, changed: true}
}

// Hear takes a beat in. It reports whether a router has begun that may not know this one yet.
func (s *Set) Hear(now time.Time, m *meshv1.RouterBeat) (begun bool) {
	id, life := m.GetRouterId(), m.GetRouterIncarnation()
	if id == s.self.ID {
		if life == s.self.Incarnation {
			s.hearSelf(now)
		} else if !s.past.Late(now, id, life, false, goneAfter) {
			s.past.Replaced(now, id, life)
		}
		return false
	}
	was := s.others[id]
	another := was == nil || was.Incarnation != life
	switch {
	case another && s.past.Late(now, id, life, was == nil || now.Sub(was.heard) > goneAfter, goneAfter):
		// said by a process before
		return false
	case m.GetLeaving():
		s.past.Left(now, id, life)
		if !another {
			delete(s.others, id)
			s.changed = true
		}
		return false
	case was == nil && len(s.others) >= most-1:
		return false
	}
	is := Router{ID: id, Incarnation: life, Address: m.GetAddress(), HTTP: m.GetHttpAddress(), Version: m.GetVersion()}
	s.changed = s.changed || was == nil || was.Router != is
	if was != nil && another {
		s.past.Replaced(now, id, was.Incarnation)
	}
	s.others[id] = &other{is, now}
	return another
}

// Twin reports whether another process has the id of this router.
func (s *Set) Twin(now time.Time) bool { return slices.Contains(s.past.Twins(now), s.self.ID) }

func (s *Set) hearSelf(now time.Time) {
	if s.deaf(now) {
		for _, o := range s.others {
			o.heard = now
		}
	}
	s.heard = now
}

func (s *Set) deaf(now time.Time) bool { return now.Sub(s.heard) > deafAfter }

// Tick drops who is silent. It is called several times a second.
func (s *Set) Tick(now time.Time) {
	if s.deaf(now) {
		return
	}
	for id, o := range s.others {
		if now.Sub(o.heard) > goneAfter {
			s.past.Quiet(now, id, o.Incarnation)
			delete(s.others, id)
			s.changed = true
		}
	}
}

// Changed reports whether Live may say something else than when it was asked the last time.
func (s *Set) Changed() bool {
	defer func() { s.changed = false }()
	return s.changed
}

// Live is every live router by id, this one included.
func (s *Set) Live() []Router {
	live := []Router{s.self}
	for o := range maps.Values(s.others) {
		live = append(live, o.Router)
	}
	slices.SortFunc(live, func(a, b Router) int { return cmp.Compare(a.ID, b.ID) })
	return live
}
