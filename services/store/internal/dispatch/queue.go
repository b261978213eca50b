package dispatch

import (
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of what waits to be told.
const (
	// maxMessages and maxBytes of bodies; beyond, topics are told instead.
	maxMessages = 64 << 10
	maxBytes    = 32 << 20
	// maxChecks topics; beyond, nothing is told, and the edges' own comparison of heads finds it.
	maxChecks = 64 << 10
)

// queue is what routers have not been told yet.
type queue struct {
	messages []message
	bytes    int
	checks   map[string]bool
}

// message that was committed.
type message struct {
	item *meshv1.AppendItem
	at   *meshv1.AppendResult
}

// put queues a message, or its topic where too much waits; OK, or what became of it.
func (q *queue) put(item *meshv1.AppendItem, at *meshv1.AppendResult) wirev1.Code {
	if len(q.messages) >= maxMessages || q.bytes+len(item.GetBody()) > maxBytes || sizeOf(item) > maxNotice {
		return q.check(item.GetTopic())
	}
	q.messages = append(q.messages, message{item, at})
	q.bytes += len(item.GetBody())
	return wirev1.Code_CODE_OK
}

// check queues a topic whose head interested edges are to compare.
func (q *queue) check(topic string) wirev1.Code {
	if q.checks[topic] {
		return wirev1.Code_CODE_OK
	}
	if len(q.checks) >= maxChecks {
		return wirev1.Code_CODE_QUEUE_FULL
	}
	if q.checks == nil {
		q.checks = map[string]bool{}
	}
	q.checks[topic] = true
	return wirev1.Code_CODE_OK
}

// notices cuts what is queued into notices, in the order of the commits.
func (q *queue) notices(each func(notice)) {
	n := newNotice()
	room := func(size int) {
		if n.size+size > maxNotice {
			each(n)
			n = newNotice()
		}
		n.size += size
	}
	for _, m := range q.messages {
		room(sizeOf(m.item))
		n.add(m)
	}
	for topic := range q.checks {
		room(len(topic) + overhead)
		n.m.CheckTopics = append(n.m.CheckTopics, topic)
	}
	if n.size > 0 {
		each(n)
	}
}
