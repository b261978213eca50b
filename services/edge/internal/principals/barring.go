package principals

import (
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// NamespacesChanged ends subscriptions of clients that a namespace lets no client have any more,
// some slots at a time. One that is under way goes on with the newest rules, and begins again for
// what it has passed.
func (t *Table) NamespacesChanged() {
	if t.cfg.Namespaces == nil || t.barring != nil || t.cfg.Namespaces().Barred() == 0 {
		return
	}
	t.barring = &barring{t: t, table: t.cfg.Namespaces(), review: review{t: t}}
	t.barring.review.look = t.barring.look
	t.jobs.Push(t.barring)
}

// barring looks at every client's subscriptions.
type barring struct {
	t      *Table
	table  *policy.Table // as of its first slot
	slots  walk.Slots
	review review // of the slot that is next
	begun  bool
}

// Step implements walk.Job.
func (j *barring) Step() (done bool) {
	t, table := j.t, j.t.cfg.Namespaces()
	long := false
	done = table.Barred() == 0 || j.slots.Step(t.cost, slotsSlice, t.delivery.Slots(), func(slot uint32) bool {
		if long {
			return false // the next Step goes on with it
		}
		if !j.begun {
			at, open := t.delivery.OpenConn(slot)
			_, _, backend, _ := t.delivery.Client(slot)
			if !open || backend {
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
	case table != j.table:
		j.table, j.slots, j.begun = table, walk.Slots{}, false
		return false
	}
	t.barring = nil
	return true
}

// look ends what a namespace bars.
func (j *barring) look(end ender) {
	t, table := j.t, j.t.cfg.Namespaces()
	t.cost.Add(1 + table.Barred())
	if end(func(filter, _ string) string {
		if why := table.Bars(filter); why != nil {
			return why.Message
		}
		return ""
	}) {
		t.stats.Barred++
	}
}
