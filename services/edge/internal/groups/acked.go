package groups

import (
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/groups/acked"
)

// ackedPart of the groups' memory is the most that ACKs take that are remembered.
const ackedPart = 16

// remember that a message was ACKed.
func (g *Groups) remember(s *share, m message) {
	if s.acked.Len() == 0 {
		s.forgetAt = g.now.Add(acked.For)
		defer g.planShare(s)
	}
	g.acks.Add(&s.acked, m.topic, m.epoch, m.seq, g.now)
}

// forgetEvery is how long ACKs gather that are forgotten together.
const forgetEvery = time.Second

// forgetAcked drops what is old.
func (g *Groups) forgetAcked(s *share) {
	if s.acked.Len() == 0 || g.now.Before(s.forgetAt) {
		return
	}
	s.forgetAt = g.now.Add(forgetEvery)
	if g.acks.Expire(&s.acked, g.now); s.acked.Len() == 0 {
		return
	}
	if at := g.acks.Oldest(&s.acked).Add(acked.For); at.After(s.forgetAt) {
		s.forgetAt = at
	}
}
