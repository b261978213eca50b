package crowd

import "container/list"

// lines are those that wait, in a line for each address that they come from. Addresses take
// turns.
type lines[T any] struct {
	n      int
	of     map[string]*list.Element // of *line[T], by address
	order  *list.List               // whose turn is next, first
	bySize []*list.List             // of *line[T], with as many that wait as the place says
}

type line[T any] struct {
	from  string
	asked []T
	size  *list.Element // in bySize
}

func newLines[T any]() lines[T] {
	return lines[T]{of: map[string]*list.Element{}, order: list.New()}
}

// push puts one at the end of the line of its address.
func (s *lines[T]) push(from string, a T) {
	at := s.of[from]
	if at == nil {
		at = s.order.PushBack(&line[T]{from: from})
		s.of[from] = at
	}
	l := at.Value.(*line[T])
	l.asked = append(l.asked, a)
	s.n++
	s.sized(l, len(l.asked)-1)
}

// pop is the first of the address whose turn it is.
func (s *lines[T]) pop() (one T, ok bool) {
	at := s.order.Front()
	if at == nil {
		return one, false
	}
	l := at.Value.(*line[T])
	a := l.asked[0]
	l.asked[0] = one
	l.asked = l.asked[1:]
	s.order.MoveToBack(at)
	s.left(at, l)
	return a, true
}

// giveWay takes out the last one of the address with the most, where it has more than from; false:
// none has.
func (s *lines[T]) giveWay(from string) (one T, ok bool) {
	has := 0
	if at := s.of[from]; at != nil {
		has = len(at.Value.(*line[T]).asked)
	}
	if len(s.bySize)-1 <= has+1 {
		return one, false
	}
	l := s.bySize[len(s.bySize)-1].Front().Value.(*line[T])
	a := l.asked[len(l.asked)-1]
	l.asked[len(l.asked)-1] = one
	l.asked = l.asked[:len(l.asked)-1]
	s.left(s.of[l.from], l)
	return a, true
}

// left notes that a line has one less.
func (s *lines[T]) left(at *list.Element, l *line[T]) {
	s.n--
	s.sized(l, len(l.asked)+1)
	if len(l.asked) == 0 {
		s.order.Remove(at)
		delete(s.of, l.from)
	}
}

// sized moves a line to the place of its length, from that of before.
func (s *lines[T]) sized(l *line[T], before int) {
	if before > 0 {
		s.bySize[before].Remove(l.size)
	}
	n := len(l.asked)
	for len(s.bySize) <= n {
		s.bySize = append(s.bySize, list.New())
	}
	if n > 0 {
		l.size = s.bySize[n].PushBack(l)
	}
	for len(s.bySize) > 0 && s.bySize[len(s.bySize)-1].Len() == 0 {
		s.bySize = s.bySize[:len(s.bySize)-1]
	}
}
