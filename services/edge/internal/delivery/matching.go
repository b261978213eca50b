package delivery

// matchesSlice is how many filters are matched with a topic in one go, matchesAsOne how many in
// about the time of making one place.
const (
	matchesSlice = 128
	matchesAsOne = 8
)

// matching looks for one among many filters that matches a topic, some at a time, and from the last
// to the first: what takes the place of one that goes meanwhile was looked at, or will be. It is
// ready for the next topic once it is done.
type matching struct {
	left  int
	begun bool
}

// look asks matches of the i-th of n, and says how much that was, in places.
func (m *matching) look(n int, matches func(i int) bool) (found, done bool, cost int) {
	if !m.begun {
		m.left, m.begun = n, true
	}
	m.left = min(m.left, n)
	looked := 0
	for ; m.left > 0 && looked < matchesSlice && !found; looked++ {
		m.left--
		found = matches(m.left)
	}
	if done = found || m.left == 0; done {
		*m = matching{}
	}
	return found, done, looked / matchesAsOne
}
