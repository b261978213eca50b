package exchange

import "slices"

// Verdicts are what content filters say of one message: those that were in use for its topic when
// it was judged. They are immutable.
type Verdicts struct {
	Programs []uint32 // their numbers, ascending; messages of a topic share them
	Passes   []uint64 // a bit for each of them
}

// Of reports whether the message passes a program; known is false where it was judged without that
// one. v may be nil.
func (v *Verdicts) Of(program uint32) (passes, known bool) {
	if v == nil {
		return false, false
	}
	i, known := slices.BinarySearch(v.Programs, program)
	return known && v.Passes[i/64]&(1<<(i%64)) != 0, known
}

// Covers reports whether the message was judged by all of these programs, which are ascending.
func (v *Verdicts) Covers(programs []uint32) bool {
	if v == nil || len(v.Programs) < len(programs) {
		return false
	}
	if len(programs) == len(v.Programs) && &programs[0] == &v.Programs[0] {
		return true
	}
	at := 0
	for _, p := range programs {
		i, found := slices.BinarySearch(v.Programs[at:], p)
		if !found {
			return false
		}
		at += i + 1
	}
	return true
}
