package book

// timed is what timers wake: each has one at most. timer is the timers', 0 of who has none.
type timed interface {
	comparable
	timer() *int32
}

// timers is a heap by time of who is woken when. Times stand in the heap itself, so that comparing
// them touches nothing else.
type timers[T timed] []alarm[T]

type alarm[T timed] struct {
	at   uint64
	what T
}

// set gives what a timer, or moves that which it has.
func (h *timers[T]) set(what T, at uint64) {
	i := int(*what.timer()) - 1
	if i < 0 {
		*h = append(*h, alarm[T]{})
		i = len(*h) - 1
	}
	h.sift(i, alarm[T]{at, what})
}

// at is when what is woken; false: not at all.
func (h timers[T]) at(what T) (uint64, bool) {
	i := *what.timer()
	if i == 0 {
		return 0, false
	}
	return h[i-1].at, true
}

// drop takes the timer away that what may have.
func (h *timers[T]) drop(what T) {
	i := int(*what.timer()) - 1
	if i < 0 {
		return
	}
	*what.timer() = 0
	last := len(*h) - 1
	end := (*h)[last]
	(*h)[last] = alarm[T]{}
	*h = (*h)[:last]
	if i < last {
		h.sift(i, end)
	}
}

// sift puts an alarm where i is vacant.
func (h timers[T]) sift(i int, a alarm[T]) {
	for i > 0 && h[(i-1)/2].at > a.at {
		h.put(i, h[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		below := 2*i + 1
		if below >= len(h) {
			break
		}
		if below+1 < len(h) && h[below+1].at < h[below].at {
			below++
		}
		if h[below].at >= a.at {
			break
		}
		h.put(i, h[below])
		i = below
	}
	h.put(i, a)
}

func (h timers[T]) put(i int, a alarm[T]) {
	h[i] = a
	*a.what.timer() = int32(i) + 1
}
