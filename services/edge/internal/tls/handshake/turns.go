package handshake

import "container/list"

// origin is the handshakes of one address. Its pool's lock guards it.
type origin struct {
	name   string
	under  int       // under way
	silent list.List // of those that wait for their client, the longest first
	queue  list.List // of those that wait for a worker, the longest first
	inLine bool      // in pool.line
	at     int       // in pool.sizes
}

// sizes are the origins with handshakes under way, as a heap.Interface: the one with the most
// first.
type sizes []*origin

func (s sizes) Len() int           { return len(s) }
func (s sizes) Less(i, j int) bool { return s[i].under > s[j].under }
func (s sizes) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].at, s[j].at = i, j
}

// Push implements heap.Interface.
func (s *sizes) Push(x any) {
	o := x.(*origin)
	o.at = len(*s)
	*s = append(*s, o)
}

// Pop implements heap.Interface.
func (s *sizes) Pop() any {
	last := len(*s) - 1
	o := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return o
}
