package edgequeue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	// maxBatch is the size at which a batch is full, in bytes; a single delivery may be longer.
	maxBatch = 512 << 10
	// maxCorked is how many things may be queued while corked before the sender is woken. To
	// publish a message takes a router about 3 µs, so that no message waits for longer than 200 µs.
	maxCorked = 64
	// answerEvery is for how long answers to announcements are gathered.
	answerEvery = 5 * time.Millisecond
	// beatEvery is after how long without a frame an edge gets a beat. Beat is called every 100 ms:
	// the promise is 500 ms.
	beatEvery = 350 * time.Millisecond
)

// batch is what waits under one number. A gap is a batch whose deliveries were dropped and that has
// only its number.
type batch struct {
	data  []byte
	items int
	gap   bool
}

// Queue holds what one edge has to get, or what all have to. Only the sender takes batches out;
// everybody else only adds to it.
//
// The rule of batching: a batch begins with the first thing that is queued while no batch is open,
// and gets its place in the order of sending at once. So with an idle sender it is sent straight
// away, with a single message in it, and while the sender is busy with batches before it, it grows,
// to maxBatch at most. No message waits by the clock for others that may come: batches get as large
// as the load makes them, and the wait is what sending the batches before it takes. Only a caller
// that has more messages at hand corks: then an idle sender is woken once they are queued, or for
// every maxCorked of them.
type Queue struct {
	order       *sendOrder
	edge        interest.Edge // the zero Edge: everyone
	subject     string
	maxBytes    int // bytes that may wait
	total       *total
	bytesMirror *atomic.Int64 // a copy of bytes, read without mu; nil: nobody reads it

	mu           sync.Mutex
	batches      []batch
	lastClosed   bool // nothing is added to the last batch
	bytes        int
	spare        []byte
	applied      uint64
	answerDue    bool // applied has to be sent soon
	answerListed bool // it is in order.answering
	wantSnapshot bool
	closed       bool
	sentAt       time.Time // when the last frame was handed to NATS
	n            uint64    // of the last batch
}

// Deliver queues a delivery that AppendDelivery encoded. It never blocks. It reports whether the
// delivery was queued; otherwise it was dropped and became a gap.
func (q *Queue) Deliver(encoded []byte) bool { return q != nil && q.put(encoded) }

// Check asks the edge to compare a topic's head with the store. Like a delivery it is part of a
// numbered batch.
func (q *Queue) Check(topic string) bool { return q != nil && q.put(appendCheck(nil, topic)) }

// Answer tells the edge, within milliseconds, which version was applied, and whether a snapshot is
// wanted.
func (q *Queue) Answer(applied uint64, want bool) {
	if q == nil {
		return
	}
	q.mu.Lock()
	q.applied, q.answerDue, q.wantSnapshot = applied, true, q.wantSnapshot || want
	first := q.listAnswer()
	q.mu.Unlock()
	switch {
	case first:
		q.order.addAnswer(q)
	case want: // a snapshot is not waited for
		q.order.recheckAnswers()
	}
}

// put adds encoded fields of a frame to the open batch. It reports false where the queue is full;
// the number of a gap tells the edge so.
func (q *Queue) put(data []byte) bool {
	q.mu.Lock()
	ok, begun := q.addToBatch(data)
	if begun {
		q.order.addBatch(q)
	}
	q.mu.Unlock()
	q.order.notePut(begun)
	return ok
}

func (q *Queue) addToBatch(data []byte) (ok, begun bool) {
	if q.closed {
		return false, false
	}
	last := len(q.batches) - 1
	open := last >= 0 && !q.lastClosed
	if q.bytes+len(data) > q.maxBytes || q.total.full(len(data)) {
		if !open || !q.batches[last].gap {
			q.beginBatch(batch{gap: true})
			last, begun = last+1, true
		}
		q.batches[last].items++
		return false, begun
	}
	if !open || q.batches[last].gap || len(q.batches[last].data)+len(data) > maxBatch {
		q.beginBatch(batch{data: q.spare[:0]})
		q.spare = nil
		last, begun = last+1, true
	}
	b := &q.batches[last]
	b.data = append(b.data, data...)
	b.items++
	q.addBytes(len(data))
	return true, begun
}

func (q *Queue) beginBatch(b batch) {
	q.batches = append(q.batches, b)
	q.lastClosed = false
}

// closeBatch makes the next thing that is queued begin a batch, after everything that waits now.
func (q *Queue) closeBatch() {
	q.mu.Lock()
	q.lastClosed = true
	q.mu.Unlock()
}

// takeBatch takes out the oldest batch and gives it its number; ok is false where the edge is gone.
func (q *Queue) takeBatch(now time.Time) (d frameDue, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return d, false
	}
	d.batch = q.batches[0]
	rest := copy(q.batches, q.batches[1:])
	q.batches[rest] = batch{}
	q.batches = q.batches[:rest]
	q.addBytes(-len(d.data))
	q.n++
	q.fillTrailer(now, &d)
	return d, true
}

// listAnswer reports whether the caller has to call addAnswer. q.mu is held.
func (q *Queue) listAnswer() (first bool) {
	first = q.answerDue && !q.answerListed
	q.answerListed = q.answerListed || q.answerDue
	return first
}

// takeAnswer returns a frame without a batch, if the edge still needs an answer, or how long to
// wait before it is sent.
func (q *Queue) takeAnswer(now time.Time) (d frameDue, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || !q.answerDue { // a batch carried the answer
		q.answerListed = false
		return d, 0
	}
	if wait = answerEvery - now.Sub(q.sentAt); wait > 0 && !q.wantSnapshot {
		return d, wait
	}
	q.answerListed = false
	q.fillTrailer(now, &d)
	d.send = true
	return d, 0
}

func (q *Queue) fillTrailer(now time.Time, d *frameDue) {
	d.trailer = trailer{edge: q.edge, n: q.n, applied: q.applied}
	if !d.gap {
		d.wantSnapshot, q.wantSnapshot, q.answerDue, q.sentAt = q.wantSnapshot, false, false, now
	}
}

// recycle keeps a sent frame's memory for a batch to come.
func (q *Queue) recycle(frame []byte) {
	if cap(frame) > maxBatch+4096 {
		return
	}
	q.mu.Lock()
	q.spare = frame
	q.mu.Unlock()
}

// frameDue is a frame to be sent.
type frameDue struct {
	batch
	trailer
	send bool
}
