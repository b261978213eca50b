package pushmesh

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// maxQueueBytes bounds what waits for handlers, beside the number of messages.
const maxQueueBytes = 8 << 20

// maxAside and maxAsideBytes bound the same while somebody waits for an answer that lies behind
// what the edge sends.
const (
	maxAside      = 1 << 16
	maxAsideBytes = 64 << 20
)

// item waits for the handlers: a message, or word of seqs that will not come, in the order of
// arrival.
type item struct {
	d        *Delivery
	link     *link // that d came over
	size     int
	progress *wirev1.Progress
}

// queue is a first-in first-out of items. Guarded by Subscriber.mu.
type queue struct {
	items []item
	head  int
	bytes int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(it item) {
	q.items = append(q.items, it)
	q.bytes += it.size
}

func (q *queue) pop() item {
	it := q.items[q.head]
	q.items[q.head] = item{}
	q.head++
	q.bytes -= it.size
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 64 {
			q.items = nil // an idle subscriber owns no queue
		}
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return it
}

// dropDurable takes out what the next connection will send again. Ephemeral messages would be lost:
// they stay.
func (q *queue) dropDurable() {
	kept := make([]item, 0, q.len())
	bytes := 0
	for _, it := range q.items[q.head:] {
		if it.d != nil && it.d.Seq == 0 {
			kept = append(kept, it)
			bytes += it.size
		}
	}
	q.items, q.head, q.bytes = kept, 0, bytes
}
