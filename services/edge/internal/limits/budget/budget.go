// Package budget shares the bytes that all queues of an edge together may hold among its event
// loops. Each loop keeps a part for itself and borrows the rest from a common one, so that a loop
// with few slow clients does not limit one with many.
package budget

import "sync/atomic"

// Pool is what loops borrow from. It is safe for concurrent use.
type Pool struct {
	total  int64
	own    int64 // what a loop never lends
	chunk  int64 // what is borrowed at a time
	free   atomic.Int64
	needs  atomic.Int64 // loops that found nothing to borrow
	shares []*Share
}

// Bounds of what is borrowed at a time.
const (
	leastChunk = 4 << 10
	mostChunk  = 1 << 20
)

// ownPart of the budget is kept by loops for themselves, in equal parts: what one has for its
// clients while it waits for others to free what theirs hold.
const ownPart = 4

// New makes a pool of so many bytes for so many loops.
func New(total int64, loops int) *Pool {
	n := int64(loops)
	p := &Pool{total: total, own: total / ownPart / n, chunk: min(max(total/64/n, leastChunk), mostChunk)}
	p.free.Store(total - p.own*n)
	for range loops {
		p.shares = append(p.shares, &Share{pool: p, granted: p.own})
	}
	return p
}

// Share of the i-th loop.
func (p *Pool) Share(i int) *Share { return p.shares[i] }

// fair is what each connection that owes anything could have if all had the same.
func (p *Pool) fair() int64 {
	owing := int64(1)
	for _, s := range p.shares {
		owing += s.owing.Load()
	}
	return p.total / owing
}

// Share belongs to one loop; only other loops' Pool looks at its count of connections.
type Share struct {
	pool    *Pool
	used    int64
	granted int64 // never more than the pool has given
	needs   bool  // counted in pool.needs
	owing   atomic.Int64
}

// kept is how much of a loop's own part messages can't have: it is for what must be said whatever
// the queues are like, such as answers.
func (s *Share) kept() int64 { return s.pool.own / 4 }

// Total bytes of the pool.
func (s *Share) Total() int64 { return s.pool.total }

// Even is what each loop would have if all had the same, in bytes.
func (s *Share) Even() int64 { return s.pool.total / int64(len(s.pool.shares)) }

// Used bytes.
func (s *Share) Used() int64 { return s.used }

// Fits reports whether messages of so many bytes may be queued, and borrows where it can.
func (s *Share) Fits(n int) bool {
	want := s.used + int64(n) + s.kept()
	return want <= s.granted || s.borrow(want-s.granted)
}

// Charge counts what is there, whether it fits or not; n below 0 takes off.
func (s *Share) Charge(n int) { s.used += int64(n) }

// Over reports whether more is there than the loop may have.
func (s *Share) Over() bool { return s.used > s.granted && !s.borrow(s.used-s.granted) }

// borrow takes n bytes or more.
func (s *Share) borrow(n int64) bool {
	p := s.pool
	n = (n + p.chunk - 1) / p.chunk * p.chunk
	if p.free.Add(-n) < 0 {
		p.free.Add(n)
		s.need(true)
		return false
	}
	s.granted += n
	s.need(false)
	return true
}

func (s *Share) need(needs bool) {
	switch {
	case needs && !s.needs:
		s.pool.needs.Add(1)
	case !needs && s.needs:
		s.pool.needs.Add(-1)
	}
	s.needs = needs
}

// Settle gives back what the loop does not use, all of it where another needs it, and notes how
// many of its connections owe anything. Excess is how much the connection that owes most of those
// here may owe while another loop needs room; false: none does.
func (s *Share) Settle(owing int) (excess int64, others bool) {
	p := s.pool
	s.owing.Store(int64(owing))
	if s.needs && s.used+s.kept() <= s.granted/2 {
		s.need(false)
	}
	needed := p.needs.Load()
	if s.needs {
		needed--
	}
	spare := s.granted - max(s.used+s.kept(), p.own)
	if needed <= 0 {
		spare -= 2 * p.chunk // what may be wanted again soon
	}
	if spare = spare / p.chunk * p.chunk; spare > 0 {
		s.granted -= spare
		p.free.Add(spare)
	}
	if needed <= 0 || s.granted <= p.own {
		return 0, false
	}
	return p.fair(), true
}
