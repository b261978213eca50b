package walk

// FIFO is a queue that keeps its room. The zero value is ready.
type FIFO[V any] struct {
	buf     []V // a ring: a power of two
	head, n int
}

// Len is how many there are.
func (q *FIFO[V]) Len() int { return q.n }

// Push adds one behind the others.
func (q *FIFO[V]) Push(v V) {
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

// Pop takes the first one; ok is false where there is none.
func (q *FIFO[V]) Pop() (v V, ok bool) {
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

// At is the i-th one; there must be as many.
func (q *FIFO[V]) At(i int) *V { return &q.buf[(q.head+i)&(len(q.buf)-1)] }

// Peek is the first one; the queue must not be empty.
func (q *FIFO[V]) Peek() *V { return &q.buf[q.head] }
