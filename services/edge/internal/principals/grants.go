package principals

import (
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
)

// grants holds what the loop's connections are granted, each once however many have it: entries
// name a place, since they lie where the collector does not look. Place 0 is no grants.
type grants struct {
	all    []held
	places map[*identity.Grants]uint32 // of those without teams
	teamed map[teamed]uint32
	free   []uint32
}

type held struct {
	grants *identity.Grants
	of     *teamed // nil: of no teams
	users  int
}

// teamed is what a proof grants, and the teams of the user beside it.
type teamed struct {
	own   *identity.Grants
	teams team.Set
}

func newGrants() grants {
	return grants{all: make([]held, 1), places: map[*identity.Grants]uint32{}, teamed: map[teamed]uint32{}}
}

// hold is the place of what a proof and teams grant, for one user more.
func (s *grants) hold(own *identity.Grants, teams team.Set) uint32 {
	if teams == (team.Set{}) {
		return s.holdOwn(own)
	}
	of := teamed{own, teams}
	place, is := s.teamed[of]
	if !is {
		n := 0
		for n < len(teams) && teams[n] != nil {
			n++
		}
		place = s.place()
		s.all[place], s.teamed[of] = held{grants: own.With(of.teams[:n:n]...), of: &of}, place
	}
	s.all[place].users++
	return place
}

func (s *grants) holdOwn(g *identity.Grants) uint32 {
	if g == nil {
		return 0
	}
	place, is := s.places[g]
	if !is {
		place = s.place()
		s.all[place], s.places[g] = held{grants: g}, place
	}
	s.all[place].users++
	return place
}

// place is one that nobody has.
func (s *grants) place() (place uint32) {
	if n := len(s.free); n > 0 {
		place, s.free = s.free[n-1], s.free[:n-1]
		return place
	}
	s.all = append(s.all, held{})
	return uint32(len(s.all) - 1)
}

// release is for one user less.
func (s *grants) release(place uint32) {
	if place == 0 {
		return
	}
	h := &s.all[place]
	if h.users--; h.users > 0 {
		return
	}
	if h.of != nil {
		delete(s.teamed, *h.of)
	} else {
		delete(s.places, h.grants)
	}
	*h = held{}
	s.free = append(s.free, place)
}

func (s *grants) at(place uint32) *identity.Grants { return s.all[place].grants }

// parts are what a place is made of.
func (s *grants) parts(place uint32) (own *identity.Grants, teams team.Set) {
	h := &s.all[place]
	if h.of == nil {
		return h.grants, teams
	}
	return h.of.own, h.of.teams
}
