// Package walk cuts what an event loop does for many things into slices, so that nothing that grows
// with subscribers or backlog is done in one go: jobs that wait in a queue for their next slice,
// and what a slice costs.
package walk

// ItemsPerUnit is how many items of a walk take about as long as one delivery, which is the unit
// that budgets are counted in.
const ItemsPerUnit = 16

// Cost counts the items that walks have looked at. Each walk over a queue, a window or the
// subscriptions of a connection is bounded by a limit and adds its length; whoever cut the work
// into slices takes what that came to, so that many such walks end a slice as many deliveries do.
type Cost struct{ Items uint32 }

// Add notes a walk over n items.
func (c *Cost) Add(n int) { c.Items += uint32(n) }

// Take is what the walks since it was taken last come to, in deliveries.
func (c *Cost) Take() int {
	if c.Items < ItemsPerUnit {
		return 0
	}
	n := c.Items / ItemsPerUnit
	c.Items %= ItemsPerUnit
	return int(n)
}

// Slice yields until most units are spent: one for each time, and what that added to the cost.
func (c *Cost) Slice(most int) func(yield func() bool) {
	return func(yield func() bool) {
		for n := 0; n < most; n += 1 + c.Take() {
			if !yield() {
				return
			}
		}
	}
}

// Job is something long: Step does one slice of it and reports whether it is done.
type Job interface{ Step() (done bool) }

// Func is a Job of one function.
type Func func() (done bool)

// Step implements Job.
func (f Func) Step() (done bool) { return f() }

// StepUnits is what one step of a job counts for.
const StepUnits = 64

// Jobs take turns, a step each. The zero value is ready.
type Jobs struct{ FIFO[Job] }

// Step has the first job do a slice, and says what that cost in units; 0: there is no job.
func (q *Jobs) Step() (cost int) {
	j, ok := q.Pop()
	if !ok {
		return 0
	}
	if !j.Step() {
		q.Push(j)
	}
	return StepUnits
}

// Slots is a walk over slots 0 to n, where n may grow meanwhile: what comes behind the walk is not
// visited.
type Slots struct{ Next uint32 }

// Step visits slots until most units are spent, and reports whether there are no more. visit
// reports whether it is done with its slot; otherwise it is given the same once more.
func (s *Slots) Step(c *Cost, most int, slots uint32, visit func(slot uint32) (done bool)) (done bool) {
	for range c.Slice(most) {
		if s.Next >= slots {
			return true
		}
		if visit(s.Next) {
			s.Next++
		}
	}
	return false
}
