package delivery

import "github.com/pushmesh/pushmesh/services/edge/internal/walk"

// Some of what the hub does for one frame, event, timer or delivery is a walk: over a queue, a
// window, the subscriptions of a connection. Each counts (walk.Cost).

const looksAsOne = walk.ItemsPerUnit

// looked notes a walk over n items.
func (h *Hub) looked(n int) { h.cost.Add(n) }

// toll is what the walks since it was asked last count for, in deliveries.
func (h *Hub) toll() int { return h.cost.Take() }

// job is something long, cut into slices: step does one and reports whether it is done.
type job interface{ step(h *Hub) (done bool) }

// jobs of the hub and of its rooms.
type jobs struct {
	walk.Jobs
	h *Hub
}

func (q *jobs) push(j job) { q.Push(hubJob{j, q.h}) }

// hubJob is a job of the hub itself.
type hubJob struct {
	job
	h *Hub
}

// Step implements walk.Job.
func (j hubJob) Step() bool { return j.step(j.h) }
