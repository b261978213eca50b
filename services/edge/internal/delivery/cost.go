package delivery

import "github.com/pushmesh/pushmesh/services/edge/internal/walk"

// Some of what the hub does for one frame, event, timer or delivery is a walk: over a queue, a
// window, the subscriptions of a connection. Each counts (walk.Cost).

const looksAsOne = walk.ItemsPerUnit

// looked notes a walk over n items.
func (h *Hub) looked(n int) { h.cost.Add(n) }

// toll is what the walks since it was asked last count for, in deliveries.
func (h *Hub) toll() int { return h.cost.Take() }

// job is something long of the hub's own, cut into slices: step does one and reports whether it is
// done.
type job interface{ step(h *Hub) (done bool) }

// jobs of the hub take turns, a step each, as those of its rooms do (rooms.jobs).
type jobs struct{ walk.FIFO[job] }

// step has the first job do a slice, and says what that cost in deliveries; 0: there is no job.
func (q *jobs) step(h *Hub) (cost int) {
	j, ok := q.Pop()
	if !ok {
		return 0
	}
	if !j.step(h) {
		q.Push(j)
	}
	return walk.StepUnits
}
