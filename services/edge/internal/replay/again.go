package replay

// Again is who waits for messages that were sent before, and that nobody keeps: they are read from
// the log. Each range is read once for all who wait for it. The zero value is ready.
type Again[T any] struct{ waiting map[place][]T }

// place of a range's first message.
type place struct {
	topic string
	from  uint64
}

// Wait has a position wait for the range of a topic from a seq on, and reports whether it is the
// first: the range is to be read. It keeps topic.
func (a *Again[T]) Wait(topic string, from uint64, t T) (first bool) {
	if a.waiting == nil {
		a.waiting = map[place][]T{}
	}
	at := place{topic, from}
	a.waiting[at] = append(a.waiting[at], t)
	return len(a.waiting[at]) == 1
}

// Arrived are those who wait for a range, which has come.
func (a *Again[T]) Arrived(topic string, from uint64) (waiting []T) {
	if len(a.waiting) == 0 {
		return nil
	}
	at := place{topic, from}
	waiting = a.waiting[at]
	delete(a.waiting, at)
	return waiting
}

// Len is how many ranges are waited for.
func (a *Again[T]) Len() int { return len(a.waiting) }
