package walk

const (
	// SearchSlice is how many of a Search are looked at in one go.
	SearchSlice = 128
	// SearchedPerUnit is how many of them are looked at in about the time of one unit.
	SearchedPerUnit = 8
)

// Search looks for one among many that matches, some at a time, and from the last to the first:
// what takes the place of one that goes meanwhile was looked at, or will be. It is ready for the
// next search once it is done.
type Search struct {
	before int // those before this place were not looked at
	begun  bool
}

// Step asks matches of the next of n, and says how much that was, in units.
func (s *Search) Step(n int, matches func(i int) bool) (found, done bool, cost int) {
	if !s.begun {
		s.before, s.begun = n, true
	}
	s.before = min(s.before, n)
	seen := 0
	for ; s.before > 0 && seen < SearchSlice && !found; seen++ {
		s.before--
		found = matches(s.before)
	}
	if done = found || s.before == 0; done {
		*s = Search{}
	}
	return found, done, seen / SearchedPerUnit
}
