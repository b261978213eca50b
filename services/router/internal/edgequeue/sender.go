package edgequeue

import (
	"context"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
)

// run sends what is due until the router has left. It is one goroutine for all edges: they share a
// connection, which takes one frame after the other anyway, and so the order of batches is the
// order on the wire.
func (s *Queues) run(ctx context.Context) {
	defer close(s.ended)
	for {
		runtime.Gosched() // whoever filled a queue may have more at hand
		wait := s.sendAll()
		if s.order.flushed() {
			s.sendLeave()
			return
		}
		if !s.order.sleep(ctx, wait) {
			return
		}
	}
}

// inlineMax is how many things a caller may have queued and still send them itself. Whoever queued
// more will queue more yet, and its batches grow while the sender's goroutine sends.
const inlineMax = 8

// inlineBatches is how many batches one caller sends at most; other callers may have queued more.
const inlineBatches = 8

// sendIfIdle sends what waits, unless another goroutine sends already; that one is signalled. It
// spares a message the way over another goroutine, and its wake-up.
func (s *Queues) sendIfIdle() {
	if s.sending.TryLock() {
		for range inlineBatches {
			q := s.order.nextBatch()
			if q == nil {
				break
			}
			s.sendNext(time.Now(), q)
		}
		s.sending.Unlock()
	}
	if s.order.hasBatches() {
		s.order.signal()
	}
}

// sendNext sends the oldest batch of q. s.sending is held.
func (s *Queues) sendNext(now time.Time, q *Queue) {
	if d, ok := q.takeBatch(now); ok {
		s.sendFrame(q, &d)
	}
}

// sendAll sends all batches, and answers in between. It returns how long the next answer waits; 0:
// no answer waits.
func (s *Queues) sendAll() (wait time.Duration) {
	s.sending.Lock()
	defer s.sending.Unlock()
	var answersAt time.Time
	for first := true; ; first = false {
		q, asked := s.order.next()
		now := time.Now()
		if q != nil {
			s.sendNext(now, q)
		}
		if first || asked || q == nil || !answersAt.IsZero() && !now.Before(answersAt) {
			wait = s.sendAnswers(now)
			answersAt = time.Time{}
			if wait > 0 {
				answersAt = now.Add(wait)
			}
		}
		if q == nil {
			return wait
		}
	}
}

func (s *Queues) sendAnswers(now time.Time) (wait time.Duration) {
	return s.order.eachAnswer(func(q *Queue) time.Duration {
		d, wait := q.takeAnswer(now)
		if d.send {
			s.sendFrame(q, &d)
		}
		return wait
	})
}

// sendLeave tells every edge that this router leaves the mesh.
func (s *Queues) sendLeave() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, q := range s.queues {
		q.mu.Lock()
		var d frameDue
		q.fillTrailer(time.Now(), &d)
		q.mu.Unlock()
		d.leaving = true
		s.sendFrame(q, &d)
	}
}

// sendFrame hands one frame to NATS. A batch that NATS refuses has used its number all the same:
// the edge sees the gap with the next frame that arrives, and reads the log.
func (s *Queues) sendFrame(q *Queue, d *frameDue) {
	if q == s.all {
		s.broadcasts = d.n
	}
	if d.gap {
		s.metrics.batchesLost.WithLabelValues("QUEUE_FULL").Inc()
		return
	}
	d.router, d.incarnation, d.isBroadcast, d.broadcasts = s.cfg.RouterID, s.cfg.Incarnation, q == s.all, s.broadcasts
	d.events = events.Mask(s.events.Load())
	size := len(d.data)
	frame := d.append(d.data)
	err := s.cfg.Bus.Publish(q.subject, frame)
	switch {
	case d.items == 0:
	case err != nil:
		s.metrics.batchesLost.WithLabelValues("UNAVAILABLE").Inc()
	default:
		s.metrics.batches.Inc()
		s.metrics.batchItems.Observe(float64(d.items))
		s.metrics.batchBytes.Observe(float64(size))
		if q == s.all {
			s.metrics.broadcasts.Inc()
		}
	}
	q.recycle(frame)
}
