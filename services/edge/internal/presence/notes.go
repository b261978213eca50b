package presence

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// note is to look at a connection's place in a topic, or that it ended.
type note struct {
	f     *filter // nil: it ended
	c     exchange.Conn
	topic string // with wildcards
	id    uint64 // of the connection that ended
}

// MaxNotes bounds what waits to be looked at.
const MaxNotes = 1 << 16

// notes is a queue that keeps its room.
type notes struct {
	buf     []note // a power of two
	head, n int
}

// put is false where there is no room.
func (q *notes) put(n note) bool {
	if q.n == MaxNotes {
		return false
	}
	if q.n == len(q.buf) {
		grown := make([]note, max(16, 2*len(q.buf)))
		for i := range q.n {
			grown[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
		}
		q.buf, q.head = grown, 0
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = n
	q.n++
	return true
}

func (q *notes) take() (n note, ok bool) {
	if q.n == 0 {
		return n, false
	}
	n, q.buf[q.head] = q.buf[q.head], note{}
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return n, true
}
