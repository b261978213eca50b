package sendq

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// ExpiresBy notes when a message of the queue expires; 0: never. The queue must not be empty.
func (q *Queue) ExpiresBy(at uint64) { q.s.expiresBy(at) }

func (s *state) expiresBy(at uint64) {
	if at != 0 && (s.expires == 0 || at < s.expires) {
		s.expires = at
	}
}

// MayHaveExpired reports whether the messages that the next write would hold must be looked at. The
// queue may be empty.
func (q *Queue) MayHaveExpired() bool {
	return q.s.expires != 0 && q.s.expires <= q.s.shared.wall
}

// ForgetExpiry begins a walk over the queue that notes anew when messages expire.
func (q *Queue) ForgetExpiry() { q.s.expires = 0 }

// FirstExpired reports whether the first message of the i-th item, of messages that have not begun,
// has expired. Where another of its run has, the first becomes an item of its own; where none has,
// it notes when one will.
func (q *Queue) FirstExpired(i uint32) bool {
	s, wall := q.s, q.s.shared.wall
	it := s.at(i)
	if expired(it.message, wall) {
		return true
	}
	for m, n := it.message, it.count; n > 0; m, n = m.Next, n-1 {
		if expired(m, wall) {
			q.Split(i)
			s.expiresBy(s.at(i).message.ExpiresAt)
			return false
		}
	}
	for m, n := it.message, it.count; n > 0; m, n = m.Next, n-1 {
		s.expiresBy(m.ExpiresAt)
	}
	return false
}

func expired(m *exchange.Message, wall uint64) bool { return m.ExpiresAt != 0 && m.ExpiresAt <= wall }
