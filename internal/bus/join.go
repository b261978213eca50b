package bus

import (
	"context"
	"errors"
	"sync"

	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// mostSubjects are remembered in full; beyond that all are forgotten, and made again as they are
// used.
const mostSubjects = 1 << 14

// subjects are what this package's subjects are called in one mesh. It is safe for concurrent use.
type subjects struct {
	prefix string
	mu     sync.RWMutex
	full   map[string]string
}

// of is a subject in full. Who sends to the same ones again and again does not pay for it each
// time.
func (s *subjects) of(subject string) string {
	s.mu.RLock()
	full, known := s.full[subject]
	s.mu.RUnlock()
	if known {
		return full
	}
	full = s.prefix + subject
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.full) >= mostSubjects {
		clear(s.full)
	}
	s.full[subject] = full
	return full
}

// awaitMesh joins the mesh once it is known.
func (b *Bus) awaitMesh(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-b.cfg.Mesh.Known():
	}
	mesh, _ := b.cfg.Mesh.Mesh()
	if err := b.join(mesh); err != nil {
		b.cfg.Log.Error("NATS: subscribing to the mesh's subjects failed", "mesh", mesh.Name, "id", mesh.ID, "error", err)
	}
}

// join makes the subscriptions that waited, then lets messages be sent. To whom it is new, it is
// like a first connection.
func (b *Bus) join(mesh meshid.Mesh) error {
	names := &subjects{prefix: prefix(mesh), full: map[string]string{}}
	b.entering.Lock()
	var errs []error
	for _, e := range b.waiting {
		if !e.over {
			errs = append(errs, b.begin(e, names))
		}
	}
	b.waiting = nil
	b.joined.Store(names)
	b.entering.Unlock()
	if b.reached() {
		b.gap(wirev1.Code_CODE_OK)
	}
	return errors.Join(errs...)
}
