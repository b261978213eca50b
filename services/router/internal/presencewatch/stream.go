package presencewatch

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/presence"
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
	queue  []*Change
	events []presence.Event // instead, of a topic whose members name it
	err    *code.Error
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

// NextEvents is Next for a stream of OpenNamed.
func (s *Stream) NextEvents(ctx context.Context) ([]presence.Event, error) {
	for {
		s.watches.mu.Lock()
		events, err := s.events, s.err
		s.events = nil
		s.watches.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case len(events) > 0:
			return events, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TakeEvents is NextEvents without waiting. silent is how many edges have not told of their members
// yet, not even late: of all others they are among the members and the events so far.
func (s *Stream) TakeEvents() (events []presence.Event, silent int, err error) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if s.err != nil {
		return nil, 0, s.err
	}
	events, s.events = s.events, nil
	return events, s.watch.follower.IncompleteSources(), nil
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
	if w.keepsUp(s, len(s.queue)) {
		s.queue = append(s.queue, c)
		s.signal()
	}
}

// queueEvent is queueChange of what edges report. w.mu is held.
func (w *Watches) queueEvent(s *Stream, e presence.Event) {
	if w.keepsUp(s, len(s.events)) {
		s.events = append(s.events, e)
		s.signal()
	}
}

func (w *Watches) keepsUp(s *Stream, queued int) bool {
	if queued < w.cfg.MaxQueued {
		return true
	}
	w.endStream(s, code.Retry(wirev1.Code_CODE_SLOW_CONSUMER, time.Second, "the caller reads too slowly, and too many changes wait for it: watch again"))
	return false
}

// endStream ends a stream with a reason. w.mu is held.
func (w *Watches) endStream(s *Stream, why *code.Error) {
	s.err, s.queue, s.events = why, nil, nil
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
