// Package replay decides how those who are behind read on from the log: who waits for which range,
// how much they get in a millisecond and in a turn, and when there is room for more.
package replay

import "github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"

// Topic is who waits for which range of one topic's log, by the range's first seq. T names a
// position.
type Topic[T any] struct{ from map[uint64][]T }

// Reads of a loop: each range is read once for all who wait for it. The zero value is ready.
type Reads[T any] struct{ pool slab.Pool[Topic[T]] }

// Wait has a position wait for the range from a seq on, and reports whether it is the first: the
// range is to be read. at is nil while nobody waits for the topic's log.
func (r *Reads[T]) Wait(at **Topic[T], from uint64, t T) (first bool) {
	if *at == nil {
		*at = r.pool.Take()
		(*at).from = map[uint64][]T{}
	}
	waiting := (*at).from[from]
	(*at).from[from] = append(waiting, t)
	return len(waiting) == 0
}

// Arrived are those who wait for the range from a seq on, which has come.
func (r *Reads[T]) Arrived(at **Topic[T], from uint64) (waiting []T) {
	if *at == nil {
		return nil
	}
	waiting = (*at).from[from]
	delete((*at).from, from)
	if len((*at).from) == 0 {
		r.Forget(at)
	}
	return waiting
}

// Forget has nobody wait for the topic's log any more.
func (r *Reads[T]) Forget(at **Topic[T]) {
	if *at != nil {
		r.pool.Give(*at)
		*at = nil
	}
}

// Topics is how many topics have somebody who waits for their log.
func (r *Reads[T]) Topics() int { return r.pool.Taken() }
