package wildcards

// LogKept is how many subscriptions a log keeps at most.
const LogKept = 4096

// Log remembers subscriptions in the order in which they became active, so that a topic catches up
// with new ones without matching all of them again. R refers to one.
type Log[R any] struct {
	base uint64 // number of refs[0]
	refs []R
}

// NewLog makes one whose numbers begin at 1, so that a topic that is new is behind.
func NewLog[R any]() Log[R] { return Log[R]{base: 1} }

// Next is the number of the next subscription.
func (l *Log[R]) Next() uint64 { return l.base + uint64(len(l.refs)) }

// Add adds one. Where many are kept, the older half is forgotten.
func (l *Log[R]) Add(r R) {
	if len(l.refs) >= LogKept {
		half := len(l.refs) / 2
		l.base += uint64(half)
		l.refs = append(l.refs[:0:0], l.refs[half:]...)
	}
	l.refs = append(l.refs, r)
}

// Since are the subscriptions from a number on; false where they are not kept any more.
func (l *Log[R]) Since(at uint64) ([]R, bool) {
	if at < l.base {
		return nil, false
	}
	return l.refs[at-l.base:], true
}
