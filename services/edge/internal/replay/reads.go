// Package replay decides how those who are behind read on from the log: who waits for which range,
// how much they get in a millisecond and in a turn, and when there is room for more.
package replay

import "github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"

// Topic is who waits for which range of one topic's log, by the range's first seq. T names a
// position.
type Topic[T any] struct {
	from map[uint64]asked[T]
	many int // of them
}

// asked is who waits for a range. many says that a connection with very many positions has asked
// for it.
type asked[T any] struct {
	waiting []T
	many    bool
}

// Reads of a loop: each range is read once for all who wait for it. The zero value is ready.
type Reads[T any] struct {
	pool slab.Pool[Topic[T]]
	many int
}

// Wait has a position wait for the range from a seq on, and reports whether it is the first: the
// range is to be read. at is nil while nobody waits for the topic's log; the position's connection
// has so many.
func (r *Reads[T]) Wait(at **Topic[T], from uint64, positions int, t T) (first bool) {
	if *at == nil {
		*at = r.pool.Take()
		(*at).from = map[uint64]asked[T]{}
	}
	x := (*at).from[from]
	first = len(x.waiting) == 0
	if x.waiting = append(x.waiting, t); first && positions > usual {
		x.many = true
		(*at).many++
		r.many++
	}
	(*at).from[from] = x
	return first
}

// Many is how many ranges are waited for that connections with very many positions have asked for.
func (r *Reads[T]) Many() int { return r.many }

// Arrived are those who wait for the range from a seq on, which has come.
func (r *Reads[T]) Arrived(at **Topic[T], from uint64) (waiting []T) {
	if *at == nil {
		return nil
	}
	x := (*at).from[from]
	if delete((*at).from, from); x.many {
		(*at).many--
		r.many--
	}
	if len((*at).from) == 0 {
		r.Forget(at)
	}
	return x.waiting
}

// Forget has nobody wait for the topic's log any more.
func (r *Reads[T]) Forget(at **Topic[T]) {
	if *at != nil {
		r.many -= (*at).many
		r.pool.Give(*at)
		*at = nil
	}
}

// Topics is how many topics have somebody who waits for their log.
func (r *Reads[T]) Topics() int { return r.pool.Taken() }
