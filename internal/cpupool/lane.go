package cpupool

import "slices"

// Lane of jobs of like size.
type Lane int

// Jobs that fit into a slice go the short way, so that none of them waits behind a big one of the same caller.
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

// lane queues jobs by caller. Each turn goes to the next caller, whose jobs go one after the other.
// Guarded by Pool.mu.
type lane struct {
	callers map[string]*caller
	turns   []*caller // those with a job that waits, next first
	queued  int
	limit   int
}

type caller struct {
	name string
	jobs []*job
}

func (l *lane) of(name string) int {
	if c := l.callers[name]; c != nil {
		return len(c.jobs)
	}
	return 0
}

// push puts a job behind the others of its caller.
func (l *lane) push(j *job) {
	c := l.caller(j.caller)
	c.jobs = append(c.jobs, j)
	l.queued++
}

// again puts a job that has run a slice before the others of its caller, and the caller behind the other ones.
func (l *lane) again(j *job) {
	c := l.caller(j.caller)
	c.jobs = slices.Insert(c.jobs, 0, j)
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

// pop takes the first job of the caller whose turn it is; nil where none waits.
func (l *lane) pop() *job {
	if len(l.turns) == 0 {
		return nil
	}
	c := l.turns[0]
	l.turns[0] = nil
	l.turns = l.turns[1:]
	j := c.jobs[0]
	c.jobs[0] = nil
	c.jobs = c.jobs[1:]
	l.queued--
	if len(c.jobs) > 0 {
		l.turns = append(l.turns, c)
	} else {
		delete(l.callers, c.name)
	}
	return j
}

// remove takes a job that waits out. It says whether it was there.
func (l *lane) remove(j *job) bool {
	c := l.callers[j.caller]
	if c == nil {
		return false
	}
	i := slices.Index(c.jobs, j)
	if i < 0 {
		return false
	}
	c.jobs = slices.Delete(c.jobs, i, i+1)
	l.queued--
	if len(c.jobs) == 0 {
		delete(l.callers, c.name)
		if t := slices.Index(l.turns, c); t >= 0 {
			l.turns = slices.Delete(l.turns, t, t+1)
		}
	}
	return true
}
