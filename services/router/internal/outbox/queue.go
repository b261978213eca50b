package outbox

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	// maxBatch is where a batch is full, in bytes; one delivery may be longer.
	maxBatch = 512 << 10
	// answerEvery is how long answers to announcements gather.
	answerEvery = 5 * time.Millisecond
	// beatEvery is when an edge that got no frame gets a beat. Beat is called every 100 ms: the promise is 500 ms.
	beatEvery = 350 * time.Millisecond
)

// batch is what waits under one number. A hole is a batch of which nothing is left but the number.
type batch struct {
	data  []byte
	items int
	hole  bool
}

// queue holds what one edge has to get. Its goroutine (run) sends; everybody else only puts in.
type queue struct {
	out     *Outbox
	edge    interest.Edge
	subject string
	wake    chan struct{} // 1: there is something to do
	ended   chan struct{}

	mu      sync.Mutex
	batches []batch
	bytes   int
	spare   []byte
	applied uint64
	answer  bool // applied has to be said soon
	want    bool
	leave   bool
	gone    bool
	sentAt  time.Time // when the last frame was handed to NATS
	n       uint64    // of the last batch
}

func newQueue(o *Outbox, e interest.Edge, n uint64) *queue {
	return &queue{
		out: o, edge: e, subject: bus.EdgeFrames(e.ID), n: n,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// put adds encoded fields of a frame to the batch that waits; false where the queue is full, and the number
// of a hole tells the edge so.
func (q *queue) put(data []byte) bool {
	q.mu.Lock()
	ok := q.add(data)
	q.mu.Unlock()
	q.signal()
	return ok
}

func (q *queue) add(data []byte) bool {
	last := len(q.batches) - 1
	if q.bytes+len(data) > q.out.cfg.QueueBytes {
		if last < 0 || !q.batches[last].hole {
			q.batches = append(q.batches, batch{hole: true})
			last++
		}
		q.batches[last].items++
		return false
	}
	if last < 0 || q.batches[last].hole || len(q.batches[last].data)+len(data) > maxBatch {
		q.batches = append(q.batches, batch{data: q.spare[:0]})
		q.spare = nil
		last++
	}
	b := &q.batches[last]
	b.data = append(b.data, data...)
	b.items++
	q.bytes += len(data)
	return true
}

// due is what run has to do next.
type due struct {
	batch
	trailer
	send bool
	wait time.Duration // until an answer is due
	end  bool
}

func (q *queue) next(now time.Time) due {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := due{trailer: trailer{router: q.out.cfg.RouterID, incarnation: q.out.cfg.Incarnation, edge: q.edge, applied: q.applied}}
	if q.gone {
		d.end = true
		return d
	}
	if len(q.batches) > 0 {
		d.batch = q.batches[0]
		q.batches[0] = batch{}
		q.batches = q.batches[1:]
		q.bytes -= len(d.data)
		q.n++
		d.send = true
	} else if q.leave {
		d.send, d.end, d.trailer.leave = true, true, true
	} else if q.answer {
		if d.wait = answerEvery - now.Sub(q.sentAt); d.wait > 0 && !q.want {
			return d
		}
		d.send = true
	}
	d.n = q.n
	if d.send && !d.hole {
		d.trailer.want, q.want, q.answer, q.sentAt = q.want, false, false, now
	}
	return d
}

// run sends what is due until the edge is gone or the router left. While one batch is on its way into the
// connection the next one gathers: that is all the batching there is when the edge keeps up, and it costs no waiting.
func (q *queue) run(ctx context.Context) {
	defer close(q.ended)
	for {
		runtime.Gosched() // whoever filled the queue may have more at hand
		d := q.next(time.Now())
		if d.send {
			q.send(&d)
		}
		switch {
		case d.end:
			return
		case d.send:
		case !q.sleep(ctx, d.wait):
			return
		}
	}
}

// sleep waits for a signal, or for so long where wait is above 0; false once ctx ended.
func (q *queue) sleep(ctx context.Context, wait time.Duration) bool {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-q.wake:
	case <-due:
	}
	return true
}

// send hands one frame to NATS. A batch that it refuses has used its number all the same: the edge sees the hole
// with the next frame that arrives, and looks at the log.
func (q *queue) send(d *due) {
	m := q.out.metrics
	if d.hole {
		m.holes.WithLabelValues("QUEUE_FULL").Inc()
		return
	}
	size := len(d.data)
	frame := d.trailer.append(d.data)
	if err := q.out.cfg.Bus.Publish(q.subject, frame); err != nil {
		if d.items > 0 {
			m.holes.WithLabelValues("UNAVAILABLE").Inc()
		}
	} else if d.items > 0 {
		m.batches.Inc()
		m.batchItems.Observe(float64(d.items))
		m.batchBytes.Observe(float64(size))
	}
	if cap(frame) <= maxBatch+4096 {
		q.mu.Lock()
		q.spare = frame
		q.mu.Unlock()
	}
}
