package outbox

import (
	"context"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
)

// run sends what is due until the router left. It is one goroutine for all edges: they share a
// connection, which takes one frame after the other anyway, and so the order of batches is the
// order on the wire.
func (o *Outbox) run(ctx context.Context) {
	defer close(o.ended)
	for {
		runtime.Gosched() // whoever filled a queue may have more at hand
		wait := o.turn()
		if o.line.left() {
			o.farewell()
			return
		}
		if !o.line.sleep(ctx, wait) {
			return
		}
	}
}

// passedPut is how many things put are worth a goroutine of their own: batches of who has more at
// hand grow while it sends.
const passedPut = 8

// passedMost batches are sent by one who has put some of them; others may have put more.
const passedMost = 8

// pass sends what waits, unless somebody does already, who is told. It spares a message the way
// over another goroutine, which is a wake more.
func (o *Outbox) pass() {
	if o.sending.TryLock() {
		for range passedMost {
			q := o.line.take()
			if q == nil {
				break
			}
			o.sendNext(time.Now(), q)
		}
		o.sending.Unlock()
	}
	if o.line.waits() {
		o.line.signal()
	}
}

// sendNext sends the oldest batch of q. o.sending is held.
func (o *Outbox) sendNext(now time.Time, q *Queue) {
	if d, ok := q.take(now); ok {
		o.send(q, &d)
	}
}

// turn sends all batches, and answers in between. It says how long the next answer waits; 0: none
// does.
func (o *Outbox) turn() (wait time.Duration) {
	o.sending.Lock()
	defer o.sending.Unlock()
	var answersAt time.Time
	for first := true; ; first = false {
		q, asked := o.line.next()
		now := time.Now()
		if q != nil {
			o.sendNext(now, q)
		}
		if first || asked || q == nil || !answersAt.IsZero() && !now.Before(answersAt) {
			wait = o.answer(now)
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

func (o *Outbox) answer(now time.Time) (wait time.Duration) {
	return o.line.answers(func(q *Queue) time.Duration {
		d, wait := q.reply(now)
		if d.send {
			o.send(q, &d)
		}
		return wait
	})
}

// farewell tells every edge that this router takes no part any more.
func (o *Outbox) farewell() {
	o.sending.Lock()
	defer o.sending.Unlock()
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, q := range o.queues {
		q.mu.Lock()
		var d due
		q.tell(time.Now(), &d)
		q.mu.Unlock()
		d.leave = true
		o.send(q, &d)
	}
}

// send hands one frame to NATS. A batch that it refuses has used its number all the same: the edge
// sees the hole with the next frame that arrives, and looks at the log.
func (o *Outbox) send(q *Queue, d *due) {
	if q == o.all {
		o.casts = d.n
	}
	if d.hole {
		o.metrics.holes.WithLabelValues("QUEUE_FULL").Inc()
		return
	}
	d.router, d.incarnation, d.everyone, d.casts = o.cfg.RouterID, o.cfg.Incarnation, q == o.all, o.casts
	d.events = events.Mask(o.events.Load())
	size := len(d.data)
	frame := d.append(d.data)
	err := o.cfg.Bus.Publish(q.subject, frame)
	switch {
	case d.items == 0:
	case err != nil:
		o.metrics.holes.WithLabelValues("UNAVAILABLE").Inc()
	default:
		o.metrics.batches.Inc()
		o.metrics.batchItems.Observe(float64(d.items))
		o.metrics.batchBytes.Observe(float64(size))
		if q == o.all {
			o.metrics.broadcasts.Inc()
		}
	}
	q.reuse(frame)
}
