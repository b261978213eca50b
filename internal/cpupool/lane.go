package cpupool

import (
	"container/heap"
	"slices"
	"time"
)

// Lane of jobs of like size.
type Lane int

// Jobs that fit into a slice go the short way, so that none of them waits behind a big one of the
// same caller.
const (
	Short Lane = iota
	Long
	Lanes
)

// String names the lane in metrics.
func (l Lane) String() string {
	if l == Short {
		return "short"
	}
	return "long"
}

// lane queues jobs by caller. Each turn goes to the next caller, whose jobs go in the order of
// agenda. Guarded by Pool.mu.
type lane struct {
	callers map[string]*caller
	turns   []*caller // those with a job that waits, next first
	queued  int
	limit   int
	cost    int // of jobs admitted whose work has not ended
}

type caller struct {
	name string
	jobs agenda
}

const (
	// unit is about what a step of cost takes.
	unit = 25 * time.Nanosecond
	// stretch is how many times longer than its work each job of a caller may take.
	stretch = 10
)

// due is when a job of a cost that came then should be done, if each of its caller's were to take
// stretch times as long as its work.
func due(came time.Time, cost int) time.Time { return came.Add(stretch * unit * time.Duration(cost)) }

// agenda has a caller's jobs, the one that is due first on top: a small job overtakes a large one
// until that has waited in proportion, and those of a size go one after the other. It is a heap.
type agenda []*job

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	if !a[i].due.Equal(a[j].due) {
		return a[i].due.Before(a[j].due)
	}
	return a[i].number < a[j].number
}

func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *agenda) Push(j any) { *a = append(*a, j.(*job)) }

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	old, last := *a, len(*a)-1
	j := old[last]
	old[last] = nil
	*a = old[:last]
	return j
}

func (l *lane) of(name string) int {
	if c := l.callers[name]; c != nil {
		return len(c.jobs)
	}
	return 0
}

// push takes a job in, one that is new or one that has run a slice. A caller that had none is
// behind the other ones.
func (l *lane) push(j *job) {
	heap.Push(&l.caller(j.caller).jobs, j)
	l.queued++
}

// caller finds or makes a caller, with a turn.
func (l *lane) caller(name string) *caller {
	c := l.callers[name]
	if c == nil {
		c = &caller{name: name}
		l.callers[name] = c
		l.turns = append(l.turns, c)
	}
	return c
}

// pop takes the job that is due first of the caller whose turn it is; nil where none waits.
func (l *lane) pop() *job {
	if len(l.turns) == 0 {
		return nil
	}
	c := l.turns[0]
	l.turns[0] = nil
	l.turns = l.turns[1:]
	j := heap.Pop(&c.jobs).(*job)
	l.queued--
	if len(c.jobs) > 0 {
		l.turns = append(l.turns, c)
	} else {
		delete(l.callers, c.name)
	}
	return j
}

// remove takes a job that waits out. It reports whether it was there.
func (l *lane) remove(j *job) bool {
	c := l.callers[j.caller]
	if c == nil {
		return false
	}
	i := slices.Index(c.jobs, j)
	if i < 0 {
		return false
	}
	heap.Remove(&c.jobs, i)
	l.queued--
	if len(c.jobs) == 0 {
		delete(l.callers, c.name)
		if t := slices.Index(l.turns, c); t >= 0 {
			l.turns = slices.Delete(l.turns, t, t+1)
		}
	}
	return true
}
