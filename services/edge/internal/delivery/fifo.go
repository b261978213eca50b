package delivery

// fifo is a queue that keeps its room.
type fifo[V any] struct {
	buf  []V // a power of two
	head int
	n    int
}

func (q *fifo[V]) len() int { return q.n }

func (q *fifo[V]) push(v V) {
	if q.n == len(q.buf) {
		grown := make([]V, max(16, 2*len(q.buf)))
		for i := range q.n {
			grown[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
		}
		q.buf, q.head = grown, 0
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = v
	q.n++
}

func (q *fifo[V]) pop() (v V, ok bool) {
	if q.n == 0 {
		return v, false
	}
	var zero V
	v = q.buf[q.head]
	q.buf[q.head] = zero
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return v, true
}

// at is the i-th one; there must be as many.
func (q *fifo[V]) at(i int) *V { return &q.buf[(q.head+i)&(len(q.buf)-1)] }

// peek is the first one; the queue must not be empty.
func (q *fifo[V]) peek() *V { return &q.buf[q.head] }
