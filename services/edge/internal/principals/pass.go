package principals

import "github.com/pushmesh/pushmesh/services/edge/internal/walk"

// pass goes over every connection, some slots at a time, and reviews the subscriptions of some. It
// goes by the newest that there is, and begins again for what it has passed where that was older.
type pass struct {
	t *Table
	// current is what it goes by: a pointer, which changes with what is there.
	current func() any
	by      any // as of its first slot
	// idle reports whether there is nothing to look for; nil: there always is.
	idle func() bool
	// begin reports whether a connection is reviewed. It is asked once for each slot: also for
	// those whose connection waits for its session still, which has no subscriptions yet.
	begin  func(slot uint32) bool
	over   func()
	slots  walk.Slots
	review review // of the slot that is next
	begun  bool
}

// start has a pass look at each subscription of those whom begin picks.
func (j *pass) start(t *Table, l look) {
	j.t, j.by, j.review = t, j.current(), review{t: t, look: l}
	t.jobs.Push(j)
}

// Step implements walk.Job.
func (j *pass) Step() (done bool) {
	t, by := j.t, j.current()
	long := false
	done = j.idle != nil && j.idle() || j.slots.Step(t.cost, slotsSlice, t.delivery.Slots(), func(slot uint32) bool {
		if long {
			return false // the next Step goes on with it
		}
		if !j.begun {
			at, open := t.delivery.OpenConn(slot)
			if !j.begin(slot) || !open {
				return true
			}
			j.review.c, j.review.alone = at, -1
		}
		over := j.review.Step()
		j.begun, long = !over, !over
		return over
	})
	switch {
	case !done:
		return false
	case by != j.by:
		j.by, j.slots, j.begun = by, walk.Slots{}, false
		return false
	}
	j.over()
	return true
}
