package replay

import (
	"fmt"
	"math"
)

// Take is the part of the script that limits ask for: the first rooms of the file, at most rooms of
// them (0: all), until they come to the given fraction of the deliveries (0 or 1: all).
func (s *Script) Take(rooms int, fraction float64) *Script {
	if rooms <= 0 || rooms > len(s.Rooms) {
		rooms = len(s.Rooms)
	}
	if fraction > 0 && fraction < 1 {
		goal := uint64(math.Ceil(fraction * float64(s.Expected())))
		var sum uint64
		for i, r := range s.Rooms[:rooms] {
			if sum += r.Expected(); sum >= goal {
				rooms = i + 1
				break
			}
		}
	}
	part := &Script{Rooms: s.Rooms[:rooms]}
	for _, say := range s.Says {
		if say.Room < rooms {
			part.Says = append(part.Says, say)
		}
	}
	return part
}

// wave is a run of rooms whose subscribers are connected at the same time.
type wave struct {
	rooms    []int // indices in the script
	says     []Say // of these rooms, in file order
	users    int
	expected uint64
}

// waves splits the script so that no wave needs more than max connections.
func (s *Script) waves(limit int) ([]wave, error) {
	var out []wave
	waveOf := make([]int, len(s.Rooms))
	for i, r := range s.Rooms {
		if r.Users > limit {
			return nil, fmt.Errorf("room %s has %d users, more than %d connections", r.Name, r.Users, limit)
		}
		if len(out) == 0 || out[len(out)-1].users+r.Users > limit {
			out = append(out, wave{})
		}
		w := &out[len(out)-1]
		w.rooms = append(w.rooms, i)
		w.users += r.Users
		w.expected += r.Expected()
		waveOf[i] = len(out) - 1
	}
	for _, say := range s.Says {
		w := &out[waveOf[say.Room]]
		w.says = append(w.says, say)
	}
	return out, nil
}
