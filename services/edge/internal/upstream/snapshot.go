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

// snapshot sends a router everything, as of the last announcement. What it was being sent before is
// left off: it asked again.
func (m *Mesh) snapshot(router string) {
	if bus.CheckID(router) != nil || !m.snapshots.endLast(m.now, router) {
		return
	}
	m.snapshots.forget(m.now)
	m.announce()
	ctx, end := m.snapshots.begin(m.group.Context(), m.now, router)
	m.stats.Snapshots.Add(1)
	s := m.table.Snapshot()
	first := s.Next(nil)
	if s.Last() {
		m.publishData(bus.RouterSnapshot(router), first)
		end()
		return
	}
	m.group.Go("edge-mesh-snapshot", func(context.Context) {
		defer end()
		if m.sendParts(ctx, bus.RouterSnapshot(router), s, first) != nil { // the router asks again
			m.stats.Unsent.Add(1)
		}
	})
}

// sendParts sends one part after the other, each once the router has taken in the one before, so
// that neither NATS nor the router has more waiting than that. The mesh's goroutine puts the next
// part together meanwhile, in between of what else it does.
func (m *Mesh) sendParts(ctx context.Context, subject string, s *interest.Snapshot, part []byte) error {
	next := make(chan []byte, 1)
	var spare []byte
	for part != nil {
		into := spare[:0]
		m.ops.Do(func() { next <- s.Next(into) })
		if err := m.sendPart(ctx, subject, part); err != nil {
			return err
		}
		spare = part // NATS has it
		select {
		case part = <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (m *Mesh) sendPart(ctx context.Context, subject string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	_, err := m.cfg.Bus.Request(ctx, subject, data)
	return err
}
