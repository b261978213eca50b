package turns

// Fair holds values by who wants something done about them, and gives them out in turns: one who
// has thousands holds up the others by one value at a time. Whoever was given some is passed over
// until these are done. It is not safe for concurrent use; the zero Fair is empty.
type Fair[K comparable, V any] struct {
	of    map[K]*share[K, V]
	ready []*share[K, V] // with values, and nothing under way
}

type share[K comparable, V any] struct {
	key    K
	values []V
	busy   bool // values of a round are not done
}

// Add puts v behind what key has already.
func (f *Fair[K, V]) Add(key K, v V) {
	if f.of == nil {
		f.of = map[K]*share[K, V]{}
	}
	s := f.of[key]
	if s == nil {
		s = &share[K, V]{key: key}
		f.of[key] = s
	}
	if s.values = append(s.values, v); len(s.values) == 1 && !s.busy {
		f.ready = append(f.ready, s)
	}
}

// Ready reports whether Round has a value to give.
func (f *Fair[K, V]) Ready() bool { return len(f.ready) > 0 }

// Round calls take with one value of each in turn, and again, until take has taken most of them or
// there are no more; take reports whether it took the value, or it is not wanted any more. It
// returns whose were taken: they are passed over until Done.
func (f *Fair[K, V]) Round(most int, take func(V) bool) (whose []K) {
	var taken, again []*share[K, V]
	for n := 0; n < most && len(f.ready)+len(again) > 0; {
		from := &f.ready
		if len(f.ready) == 0 {
			from = &again
		}
		s := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		var zero V
		v := s.values[0]
		s.values[0] = zero
		s.values = s.values[1:]
		if take(v) {
			if n++; !s.busy {
				s.busy = true
				taken = append(taken, s)
			}
		}
		switch {
		case len(s.values) > 0 && s.busy:
			again = append(again, s)
		case len(s.values) > 0:
			f.ready = append(f.ready, s)
		case !s.busy:
			delete(f.of, s.key)
		}
	}
	if len(f.ready) == 0 {
		f.ready = nil
	}
	for _, s := range taken {
		whose = append(whose, s.key)
	}
	return whose
}

// Done is told whose values were dealt with.
func (f *Fair[K, V]) Done(whose []K) {
	for _, key := range whose {
		s := f.of[key]
		if s.busy = false; len(s.values) > 0 {
			f.ready = append(f.ready, s)
		} else {
			delete(f.of, key)
		}
	}
}
