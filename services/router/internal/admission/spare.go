package admission

import "time"

// spare is how full of work a router may be that takes what can wait.
const spare = 0.5

// AdmitSpare takes work that can wait: half of what may be in work, and half of what the bucket of
// messages a second holds at most, must be free. So it is refused before anything else; q names a
// priority, and no producer.
func (a *Admission) AdmitSpare(now time.Time, q Ask) (Slot, error) {
	pressure, short := a.crowd(), false
	if a.overall != nil {
		left, most, _ := a.overall.left(now)
		short = left < spare*most
	}
	if pressure > spare || short {
		return Slot{}, a.refuse(now, "", q.Messages, byWork, overloaded(max(pressure, spare), "this router has no room to spare"))
	}
	low := q
	low.Producer = "mesh" // of nobody it would count as committed
	if why, err := a.shed(&low); err != nil {
		return Slot{}, a.refuse(now, "", q.Messages, why, err)
	}
	return a.Admit(now, q)
}
