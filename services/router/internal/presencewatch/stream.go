package presencewatch

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Change of a filter's members.
type Change = pushmeshv1.PresenceServiceWatchResponse_Change

// Stream is one caller's stream of changes. One goroutine uses it.
type Stream struct {
	watches *Watches
	watch   *watch
	wake    chan struct{}

	// Guarded by all.mu.
	queue []*Change
	err   *code.Error
}

// Next waits for changes. All calls together return every change, in order; an error is the end.
func (s *Stream) Next(ctx context.Context) ([]*Change, error) {
	for {
		s.watches.mu.Lock()
		queue, err := s.queue, s.err
		s.queue = nil
		s.watches.mu.Unlock()
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
	w := s.watches
	w.mu.Lock()
	delete(s.watch.streams, s)
	w.leave(s.watch)
	w.mu.Unlock()
	w.sendLeases()
}

// queueChange queues a change. A stream whose queue is full ends: its caller learns that it does
// not have everything, and may watch again. w.mu is held.
func (w *Watches) queueChange(s *Stream, c *Change) {
	if len(s.queue) >= w.cfg.MaxQueued {
		w.endStream(s, code.Retry(wirev1.Code_CODE_SLOW_CONSUMER, time.Second, "the caller reads too slowly, and too many changes wait for it: watch again"))
		return
	}
	s.queue = append(s.queue, c)
	s.signal()
}

// endStream ends a stream with a reason. w.mu is held.
func (w *Watches) endStream(s *Stream, why *code.Error) {
	s.err, s.queue = why, nil
	delete(s.watch.streams, s)
	w.metrics.countEnd(why.Code)
	s.signal()
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
