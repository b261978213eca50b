package upstream

import "github.com/pushmesh/pushmesh/services/edge/internal/upstream/turns"

// sweptAtATime is how many topics are looked at in one step, whether anybody wants them still.
const sweptAtATime = 128

// work is what the mesh's goroutine does in slices, because it grows with what there is.
type work struct {
	turns.Queue
	sweeping bool
}

// sweepJob has the feed forget topics that nobody wants any more.
type sweepJob struct{ m *Mesh }

// sweep has it done once it is due.
func (m *Mesh) sweep() {
	if m.feed.Sweeping() && !m.work.sweeping {
		m.work.sweeping = true
		m.work.Add(sweepJob{m})
	}
}

// Step implements turns.Job.
func (j sweepJob) Step() (done bool) {
	j.m.feed.Sweep(sweptAtATime)
	j.m.work.sweeping = j.m.feed.Sweeping()
	return !j.m.work.sweeping
}
