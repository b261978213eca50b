package principals

import "github.com/pushmesh/pushmesh/internal/identity"

// grants holds what the loop's connections are granted, each once however many have it: entries
// name a place, since they lie where the collector does not look. Place 0 is no grants.
type grants struct {
	all    []held
	places map[*identity.Grants]uint32
	free   []uint32
}

type held struct {
	grants *identity.Grants
	users  int
}

func newGrants() grants { return grants{all: make([]held, 1), places: map[*identity.Grants]uint32{}} }

// hold is the place of g, for one user more.
func (s *grants) hold(g *identity.Grants) uint32 {
	if g == nil {
		return 0
	}
	place, is := s.places[g]
	if !is {
		if n := len(s.free); n > 0 {
			place, s.free = s.free[n-1], s.free[:n-1]
		} else {
			place, s.all = uint32(len(s.all)), append(s.all, held{})
		}
		s.all[place].grants, s.places[g] = g, place
	}
	s.all[place].users++
	return place
}

// release is for one user less.
func (s *grants) release(place uint32) {
	if place == 0 {
		return
	}
	h := &s.all[place]
	if h.users--; h.users == 0 {
		delete(s.places, h.grants)
		h.grants = nil
		s.free = append(s.free, place)
	}
}

func (s *grants) at(place uint32) *identity.Grants { return s.all[place].grants }
