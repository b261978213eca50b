package watches

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Change of a filter's members.
type Change = pushmeshv1.PresenceServiceWatchResponse_Change

// Stream is one caller's. One goroutine uses it.
type Stream struct {
	all  *Watches
	of   *watch
	wake chan struct{}

	// Guarded by all.mu.
	queue []*Change
	err   *code.Error
}

// Next waits for changes. What it gives in one call and the next is everything, in order; an error
// is the end.
func (s *Stream) Next(ctx context.Context) ([]*Change, error) {
	for {
		s.all.mu.Lock()
		queue, err := s.queue, s.err
		s.queue = nil
		s.all.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case len(queue) > 0:
			return queue, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close ends the stream.
func (s *Stream) Close() {
	w := s.all
	w.mu.Lock()
	delete(s.of.streams, s)
	w.exit(s.of)
	w.mu.Unlock()
	w.send()
}

// push queues a change. A stream that takes none in time ends: it is told that it does not have
// everything, rather than little by little. w.mu is held.
func (w *Watches) push(s *Stream, c *Change) {
	if len(s.queue) >= w.cfg.MaxQueued {
		w.fail(s, code.Retry(wirev1.Code_CODE_SLOW_CONSUMER, time.Second, "too many changes wait for the caller: watch again"))
		return
	}
	s.queue = append(s.queue, c)
	s.ring()
}

// fail ends a stream with a reason. w.mu is held.
func (w *Watches) fail(s *Stream, why *code.Error) {
	s.err, s.queue = why, nil
	delete(s.of.streams, s)
	w.metrics.end(why.Code)
	s.ring()
}

func (s *Stream) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
