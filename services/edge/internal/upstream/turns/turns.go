// Package turns does the long work of a goroutine in slices, so that whoever needs the goroutine
// never waits for longer than one of them, and in turns, so that short work does not wait for long
// work to be over.
package turns

import (
	"sync/atomic"
	"time"
)

// Slice is how long the work may go on before the goroutine looks after everything else, but for
// the step that it is at: steps take a tenth of it.
const Slice = 500 * time.Microsecond

// Job is work that is done in steps.
type Job interface {
	// Step does about 50 µs of the work, and reports whether that was the last of it. It may add
	// other jobs.
	Step() (done bool)
}

// Stats may be read at any time.
type Stats struct {
	// Waiting jobs; Slices done so far.
	Waiting atomic.Int64
	Slices  atomic.Uint64
	// Longest slice so far, in nanoseconds.
	Longest atomic.Int64
}

// Queue of jobs. It belongs to one goroutine; its Stats are everybody's. Who adds jobs bounds how
// many there are.
type Queue struct {
	stats Stats
	jobs  []Job     // the next one first
	rests time.Time // until then everything else goes first
}

// always is ready.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Stats of the queue.
func (q *Queue) Stats() *Stats { return &q.stats }

// Add has a job done, behind a step of each that is under way.
func (q *Queue) Add(j Job) {
	q.jobs = append(q.jobs, j)
	q.stats.Waiting.Store(int64(len(q.jobs)))
}

// Ready is for a select of the goroutine: it receives where Run has something to do. others says
// that something else waits for the goroutine; work then takes half of the time at most.
func (q *Queue) Ready(others bool) <-chan struct{} {
	if len(q.jobs) == 0 || others && time.Now().Before(q.rests) {
		return nil
	}
	return always
}

// Run does a slice: a step of each job in turn, and so on until the slice is over.
func (q *Queue) Run() {
	began := time.Now()
	now := began
	for len(q.jobs) > 0 && now.Sub(began) < Slice {
		j := q.jobs[0]
		q.jobs[0] = nil
		if q.jobs = q.jobs[1:]; !j.Step() {
			q.jobs = append(q.jobs, j)
		}
		now = time.Now()
	}
	took := now.Sub(began)
	q.rests = now.Add(took)
	q.stats.Slices.Add(1)
	q.stats.Waiting.Store(int64(len(q.jobs)))
	if int64(took) > q.stats.Longest.Load() {
		q.stats.Longest.Store(int64(took))
	}
}
