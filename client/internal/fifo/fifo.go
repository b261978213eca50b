// Package fifo is what waits in the order of arrival.
package fifo

// Queue is first in, first out, and knows its bytes. Its caller guards it.
type Queue[T interface{ Size() int }] struct {
	items  []T
	head   int
	bytes  int
	pushed uint64
}

// Len is how many wait.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Bytes is how many bytes they have.
func (q *Queue[T]) Bytes() int { return q.bytes }

// Pushed is how many were pushed ever: the number that the next one has.
func (q *Queue[T]) Pushed() uint64 { return q.pushed }

// Push puts one last.
func (q *Queue[T]) Push(it T) {
	q.items = append(q.items, it)
	q.bytes += it.Size()
	q.pushed++
}

// Pop takes the first one, and says which number it has; of what Keep left that is a later one than
// its own.
func (q *Queue[T]) Pop() (number uint64, it T) {
	var none T
	number = q.pushed - uint64(q.Len())
	it = q.items[q.head]
	q.items[q.head] = none
	q.head++
	q.bytes -= it.Size()
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 64 {
			q.items = nil // an idle queue owns no memory
		}
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return number, it
}

// Keep takes out all others.
func (q *Queue[T]) Keep(stays func(T) bool) {
	kept := make([]T, 0, q.Len())
	bytes := 0
	for _, it := range q.items[q.head:] {
		if stays(it) {
			kept = append(kept, it)
			bytes += it.Size()
		}
	}
	q.items, q.head, q.bytes = kept, 0, bytes
}
