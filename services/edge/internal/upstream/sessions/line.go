package sessions

import (
	"container/heap"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// line is the sessions that have something to be written, by when it is due. What takes one out
// costs the same however many wait. The zero line is empty.
type line struct {
	later  *byDue
	hurry  []*byDue           // due whatever they say
	behind map[string]*behind // by owner
	looked time.Time          // when those behind owners were looked at
}

// behind are sessions that wait until their owner takes another write.
type behind struct {
	walk.FIFO[*session]
	moves bool // some of those looked at last went on
}

// behindOwner is where a session is that waits until its owner takes another write.
var behindOwner = &byDue{}

// put lines a session up, or moves it to where it is due now. One that is in a hurry, or waits for
// its owner, stays where it is.
func (l *line) put(one *session) {
	switch one.in {
	case nil:
		if l.later == nil {
			l.later = &byDue{}
		}
		one.in = l.later
		heap.Push(l.later, one)
	case l.later:
		heap.Fix(l.later, one.at)
	}
}

// next takes out a session that is due; nil where none is.
func (l *line) next(now time.Time) *session {
	for len(l.hurry) > 0 {
		if one := l.hurry[0].last(); one != nil {
			return one
		}
		l.hurry = l.hurry[1:]
	}
	if l.later == nil || len(*l.later) == 0 || (*l.later)[0].due.After(now) {
		return nil
	}
	return heap.Pop(l.later).(*session)
}

// allNow has all that wait be due.
func (l *line) allNow() {
	if l.later != nil {
		l.hurry, l.later = append(l.hurry, l.later), nil
	}
}

// wait has a session wait until its owner takes another write.
func (l *line) wait(owner string, one *session) {
	if l.behind == nil {
		l.behind = map[string]*behind{}
	}
	q := l.behind[owner]
	if q == nil {
		q = &behind{}
		l.behind[owner] = q
	}
	one.in = behindOwner
	q.Push(one)
}

// goOn has sessions that wait for an owner be due: a write's worth, for it takes another one.
func (l *line) goOn(owner string) {
	l.look(owner, writesInABatch, func(*session) bool { return true })
}

// look looks at some that wait for an owner, and has those be due for which goes is true; it
// reports whether there were any.
func (l *line) look(owner string, most int, goes func(*session) bool) (some bool) {
	q := l.behind[owner]
	if q == nil {
		return false
	}
	for range min(most, q.Len()) {
		one, _ := q.Pop()
		if !goes(one) {
			q.Push(one)
			continue
		}
		one.in, some = nil, true
		l.put(one)
	}
	if q.Len() == 0 {
		delete(l.behind, owner)
	}
	return some
}

// byDue is a heap, what is due first on top.
type byDue []*session

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }
func (b byDue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].at, b[j].at = i, j
}

func (b *byDue) Push(x any) {
	one := x.(*session)
	one.at = len(*b)
	*b = append(*b, one)
}

func (b *byDue) Pop() any { return b.last() }

// last takes out the last one, in no order; nil where there is none.
func (b *byDue) last() *session {
	n := len(*b) - 1
	if n < 0 {
		return nil
	}
	one := (*b)[n]
	(*b)[n] = nil
	*b = (*b)[:n]
	one.in = nil
	return one
}
