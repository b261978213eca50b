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

// snapshot sends a router everything, as of the last announcement. What it was being sent before is
// left off: it asked again.
func (m *Mesh) snapshot(router string) {
	last, ok := m.snapshots[router]
	if bus.CheckID(router) != nil || ok && m.now.Sub(last.began) < snapshotEvery {
		return
	}
	if ok {
		last.end()
	}
	for id, s := range m.snapshots {
		select {
		case <-s.over:
			if m.now.Sub(s.began) > time.Minute {
				delete(m.snapshots, id)
			}
		default:
		}
	}
	m.announce()
	ctx, end := context.WithCancel(m.group.Context())
	m.snapshots[router] = sending{m.now, ctx.Done(), end}
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
