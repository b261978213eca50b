package gate

import "container/list"

// lines are the tokens that wait, in a line for each address that they come from. Addresses take
// turns.
type lines struct {
	n      int
	of     map[string]*list.Element // of *line, by address
	order  *list.List               // whose turn is next, first
	bySize []*list.List             // of *line, with as many that wait as the place says
}

type line struct {
	from  string
	asked []asked
	size  *list.Element // in bySize
}

func newLines() lines {
	return lines{of: map[string]*list.Element{}, order: list.New()}
}

// push puts one at the end of the line of its address.
func (s *lines) push(from string, a asked) {
	at := s.of[from]
	if at == nil {
		at = s.order.PushBack(&line{from: from})
		s.of[from] = at
	}
	l := at.Value.(*line)
	l.asked = append(l.asked, a)
	s.n++
	s.sized(l, len(l.asked)-1)
}

// pop is the first of the address whose turn it is.
func (s *lines) pop() (asked, bool) {
	at := s.order.Front()
	if at == nil {
		return asked{}, false
	}
	l := at.Value.(*line)
	a := l.asked[0]
	l.asked[0] = asked{}
	l.asked = l.asked[1:]
	s.order.MoveToBack(at)
	s.left(at, l)
	return a, true
}

// giveWay takes out the last one of the address with the most, where it has more than from; false:
// none has.
func (s *lines) giveWay(from string) (asked, bool) {
	has := 0
	if at := s.of[from]; at != nil {
		has = len(at.Value.(*line).asked)
	}
	if len(s.bySize)-1 <= has+1 {
		return asked{}, false
	}
	l := s.bySize[len(s.bySize)-1].Front().Value.(*line)
	a := l.asked[len(l.asked)-1]
	l.asked[len(l.asked)-1] = asked{}
	l.asked = l.asked[:len(l.asked)-1]
	s.left(s.of[l.from], l)
	return a, true
}

// left notes that a line has one less.
func (s *lines) left(at *list.Element, l *line) {
	s.n--
	s.sized(l, len(l.asked)+1)
	if len(l.asked) == 0 {
		s.order.Remove(at)
		delete(s.of, l.from)
	}
}

// sized moves a line to the place of its length, from that of before.
func (s *lines) sized(l *line, before int) {
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
