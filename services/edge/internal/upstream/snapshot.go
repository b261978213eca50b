package upstream

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/interest"
)

const (
	// snapshotEvery bounds how often one router is sent everything.
	snapshotEvery = 200 * time.Millisecond
	// takenWithin is how long a router has to take one part in.
	takenWithin = 2 * time.Second
)

// sending is a snapshot for one router, or the last one it had.
type sending struct {
	began time.Time
	over  <-chan struct{} // closed once it is sent, or another takes its place
	end   context.CancelFunc
}

// snapshots are those being sent, and the last that routers had, by router. The mesh's goroutine
// owns them.
type snapshots map[string]sending

// endLast ends the snapshot that a router is being sent; false where that began a moment ago and is
// left alone.
func (s snapshots) endLast(now time.Time, router string) bool {
	last, ok := s[router]
	if ok && now.Sub(last.began) < snapshotEvery {
		return false
	}
	if ok {
		last.end()
	}
	return true
}

// forget drops what was sent a while ago.
func (s snapshots) forget(now time.Time) {
	for id, one := range s {
		select {
		case <-one.over:
			if now.Sub(one.began) > time.Minute {
				delete(s, id)
			}
		default:
		}
	}
}

// begin notes a snapshot for a router: it is sent while ctx lasts, and end is called after that.
func (s snapshots) begin(parent context.Context, now time.Time, router string) (ctx context.Context, end context.CancelFunc) {
	ctx, end = context.WithCancel(parent)
	s[router] = sending{now, ctx.Done(), end}
	return ctx, end
}

// placesOfStep is how many places of the table one step of a part looks at: about 50 µs.
const placesOfStep = 512

// snapshot sends a router everything, as of the last announcement. What it was being sent before is
// left off: it asked again.
func (m *Mesh) snapshot(router string) {
	if bus.CheckID(router) != nil || !m.snapshots.endLast(m.now, router) {
		return
	}
	m.snapshots.forget(m.now)
	ctx, end := m.snapshots.begin(m.group.Context(), m.now, router)
	m.stats.Snapshots.Add(1)
	p := &part{of: m.table.Snapshot(), whole: make(chan []byte, 1)}
	if p.Step() && p.of.Last() {
		m.publishData(bus.RouterSnapshot(router), <-p.whole)
		end()
		return
	}
	m.group.Go("edge-mesh-snapshot", func(context.Context) {
		defer end()
		if m.sendParts(ctx, bus.RouterSnapshot(router), p) != nil { // the router asks again
			m.stats.Unsent.Add(1)
		}
	})
}

// part of a snapshot that is put together in steps. The table may change between two of them
// (interest.Snapshot).
type part struct {
	of    *interest.Snapshot
	data  []byte
	done  bool
	spare []byte      // for the one after the next
	whole chan []byte // it has room for one
}

// Step implements turns.Job.
func (p *part) Step() (done bool) {
	if p.done {
		return true
	}
	if p.data, p.done = p.of.Next(p.data, placesOfStep); p.done {
		p.whole <- p.data
	}
	return p.done
}

// sendParts sends one part after the other, each once the router has taken in the one before, so
// that neither NATS nor the router has more waiting than that. The mesh's goroutine puts the next
// part together meanwhile, in between of what else it does.
func (m *Mesh) sendParts(ctx context.Context, subject string, p *part) error {
	m.ops.Do(func() { m.work.Add(p) })
	for {
		var data []byte
		select {
		case data = <-p.whole:
		case <-ctx.Done():
			return ctx.Err()
		}
		last, next := p.of.Last(), &part{of: p.of, data: p.spare[:0], whole: p.whole}
		if !last {
			m.ops.Do(func() { m.work.Add(next) })
		}
		if err := m.sendPart(ctx, subject, data); err != nil || last {
			return err
		}
		next.spare, p = data, next // NATS has it
	}
}

func (m *Mesh) sendPart(ctx context.Context, subject string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	_, err := m.cfg.Bus.Request(ctx, subject, data)
	return err
}
