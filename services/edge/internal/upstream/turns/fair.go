package turns

// Fair holds values by who wants something done about them, and gives them out in turns: one who
// has thousands holds up the others by one value at a time. Whoever was given some is passed over
// until these are done. It keeps nothing of those who have no value and none under way. It is not
// safe for concurrent use; the zero Fair is empty.
type Fair[K comparable, V any] struct {
	of          map[K]*share[K, V]
	first, last *share[K, V] // in line: those with values, and nothing under way
}

// share is what one has.
type share[K comparable, V any] struct {
	key          K
	first, last  *Value[K, V]
	busy         bool // values of a round are not done
	lined        bool
	before, next *share[K, V] // in line
}

// Value is one that waits.
type Value[K comparable, V any] struct {
	v            V
	of           *share[K, V] // nil: it does not wait any more
	before, next *Value[K, V]
}

// Add puts v behind what key has already. What it returns is for Drop.
func (f *Fair[K, V]) Add(key K, v V) *Value[K, V] {
	if f.of == nil {
		f.of = map[K]*share[K, V]{}
	}
	s := f.of[key]
	if s == nil {
		s = &share[K, V]{key: key}
		f.of[key] = s
	}
	one := &Value[K, V]{v: v, of: s, before: s.last}
	if s.last == nil {
		s.first = one
	} else {
		s.last.next = one
	}
	s.last = one
	if !s.busy && !s.lined {
		f.lineUp(s)
	}
	return one
}

// Drop takes a value out that nobody wants any more. It does nothing where that was given out.
func (f *Fair[K, V]) Drop(one *Value[K, V]) {
	s := one.of
	if s == nil {
		return
	}
	s.take(one)
	if s.first != nil || s.busy {
		return
	}
	if s.lined {
		f.leaveLine(s)
	}
	delete(f.of, s.key)
}

// take takes a value out.
func (s *share[K, V]) take(one *Value[K, V]) {
	if one.before == nil {
		s.first = one.next
	} else {
		one.before.next = one.next
	}
	if one.next == nil {
		s.last = one.before
	} else {
		one.next.before = one.before
	}
	one.of, one.before, one.next = nil, nil, nil
}

func (f *Fair[K, V]) lineUp(s *share[K, V]) {
	s.lined, s.before = true, f.last
	if f.last == nil {
		f.first = s
	} else {
		f.last.next = s
	}
	f.last = s
}

func (f *Fair[K, V]) leaveLine(s *share[K, V]) {
	if s.before == nil {
		f.first = s.next
	} else {
		s.before.next = s.next
	}
	if s.next == nil {
		f.last = s.before
	} else {
		s.next.before = s.before
	}
	s.lined, s.before, s.next = false, nil, nil
}

// Len is how many have values, or some under way.
func (f *Fair[K, V]) Len() int { return len(f.of) }

// Ready reports whether Round has a value to give.
func (f *Fair[K, V]) Ready() bool { return f.first != nil }

// Round calls take with one value of each in turn, and again, until there were most of them or
// there are no more. take may Drop others. Round returns whose were taken: they are passed over
// until Done.
func (f *Fair[K, V]) Round(most int, take func(V)) (whose []K) {
	var again []*share[K, V]
	for n := 0; n < most && (f.first != nil || len(again) > 0); {
		s := f.first
		if s != nil {
			f.leaveLine(s)
			s.busy = true
			whose = append(whose, s.key)
		} else if s, again = again[0], again[1:]; s.first == nil {
			continue // all that it had were dropped
		}
		v := s.first.v
		s.take(s.first)
		take(v)
		if n++; s.first != nil {
			again = append(again, s)
		}
	}
	return whose
}

// Done is told whose values were dealt with.
func (f *Fair[K, V]) Done(whose []K) {
	for _, key := range whose {
		s := f.of[key]
		if s.busy = false; s.first != nil {
			f.lineUp(s)
		} else {
			delete(f.of, key)
		}
	}
}
