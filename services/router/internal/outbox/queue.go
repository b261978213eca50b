package outbox

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	// maxBatch is where a batch is full, in bytes; one delivery may be longer.
	maxBatch = 512 << 10
	// corkedMost is how many things put wake the sender although more are about to come. To publish
	// a message takes a router about 3 µs, so that none waits for longer than 200 µs.
	corkedMost = 64
	// answerEvery is how long answers to announcements gather.
	answerEvery = 5 * time.Millisecond
	// beatEvery is when an edge that got no frame gets a beat. Beat is called every 100 ms: the
	// promise is 500 ms.
	beatEvery = 350 * time.Millisecond
)

// batch is what waits under one number. A hole is a batch of which nothing is left but the number.
type batch struct {
	data  []byte
	items int
	hole  bool
}

// Queue holds what one edge has to get, or what all have to. The outbox's sender takes out;
// everybody else only puts in.
//
// The rule of batching: a batch begins with the first thing put where none is open, and takes its
// place in the line at once. So with an idle sender it leaves straight away, with a single message
// in it, and while the sender is busy with batches before it, it grows, to maxBatch at most. No
// message waits by the clock for others that may come: batches get as large as the load makes them,
// and the wait is what handing over the batches before it takes. Only somebody who has more
// messages at hand corks the outbox: then an idle sender is woken once they are put, or for every
// corkedMost of them.
type Queue struct {
	line    *line
	edge    interest.Edge // the zero Edge: everyone
	subject string
	most    int // bytes that may wait
	total   *total
	mirror  *atomic.Int64 // of bytes, for who may not take mu; nil: nobody looks

	mu      sync.Mutex
	batches []batch
	sealed  bool // nothing is added to the last batch any more
	bytes   int
	spare   []byte
	applied uint64
	answer  bool // applied has to be said soon
	asked   bool // the line knows
	want    bool
	gone    bool
	sentAt  time.Time // when the last frame was handed to NATS
	n       uint64    // of the last batch
}

// Deliver queues a delivery that AppendDelivery encoded. It never blocks; false where it became a
// hole.
func (q *Queue) Deliver(encoded []byte) bool { return q != nil && q.put(encoded) }

// Check tells the edge to compare a topic's head with the store. Like a delivery it is part of a
// numbered batch.
func (q *Queue) Check(topic string) bool { return q != nil && q.put(appendCheck(nil, topic)) }

// Answer says to the edge, within milliseconds, which version was applied, and whether a snapshot
// is wanted.
func (q *Queue) Answer(applied uint64, want bool) {
	if q == nil {
		return
	}
	q.mu.Lock()
	q.applied, q.answer, q.want = applied, true, q.want || want
	first := q.ask()
	q.mu.Unlock()
	switch {
	case first:
		q.line.ask(q)
	case want: // it does not wait
		q.line.again()
	}
}

// put adds encoded fields of a frame to the batch that waits; false where the queue is full, and
// the number of a hole tells the edge so.
func (q *Queue) put(data []byte) bool {
	q.mu.Lock()
	ok, begun := q.add(data)
	if begun {
		q.line.begun(q)
	}
	q.mu.Unlock()
	q.line.put(begun)
	return ok
}

func (q *Queue) add(data []byte) (ok, begun bool) {
	if q.gone {
		return false, false
	}
	last := len(q.batches) - 1
	open := last >= 0 && !q.sealed
	if q.bytes+len(data) > q.most || q.total.full(len(data)) {
		if !open || !q.batches[last].hole {
			q.begin(batch{hole: true})
			last, begun = last+1, true
		}
		q.batches[last].items++
		return false, begun
	}
	if !open || q.batches[last].hole || len(q.batches[last].data)+len(data) > maxBatch {
		q.begin(batch{data: q.spare[:0]})
		q.spare = nil
		last, begun = last+1, true
	}
	b := &q.batches[last]
	b.data = append(b.data, data...)
	b.items++
	q.weigh(len(data))
	return true, begun
}

func (q *Queue) begin(b batch) {
	q.batches = append(q.batches, b)
	q.sealed = false
}

// seal has the next thing put begin a batch, behind everything that is in the line now.
func (q *Queue) seal() {
	q.mu.Lock()
	q.sealed = true
	q.mu.Unlock()
}

// take takes out the oldest batch, which has its number from now on; false where the edge is gone.
func (q *Queue) take(now time.Time) (d due, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return d, false
	}
	d.batch = q.batches[0]
	rest := copy(q.batches, q.batches[1:])
	q.batches[rest] = batch{}
	q.batches = q.batches[:rest]
	q.weigh(-len(d.data))
	q.n++
	q.tell(now, &d)
	return d, true
}

// ask has the line look after q; q.mu is held.
func (q *Queue) ask() (first bool) {
	first = q.answer && !q.asked
	q.asked = q.asked || q.answer
	return first
}

// reply is a frame without a batch, if the edge still has to hear something: now, or in so long.
func (q *Queue) reply(now time.Time) (d due, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone || !q.answer { // a batch said it
		q.asked = false
		return d, 0
	}
	if wait = answerEvery - now.Sub(q.sentAt); wait > 0 && !q.want {
		return d, wait
	}
	q.asked = false
	q.tell(now, &d)
	d.send = true
	return d, 0
}

func (q *Queue) tell(now time.Time, d *due) {
	d.trailer = trailer{edge: q.edge, n: q.n, applied: q.applied}
	if !d.hole {
		d.want, q.want, q.answer, q.sentAt = q.want, false, false, now
	}
}

// reuse takes a frame's memory back for a batch to come.
func (q *Queue) reuse(frame []byte) {
	if cap(frame) > maxBatch+4096 {
		return
	}
	q.mu.Lock()
	q.spare = frame
	q.mu.Unlock()
}

// due is a frame to be sent.
type due struct {
	batch
	trailer
	send bool
}
