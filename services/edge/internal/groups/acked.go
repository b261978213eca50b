package groups

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// What an edge remembers of ACKs, for a dispatcher that begins: the one before may have died before
// it stored them, and without a word on them their messages would come again. Each is remembered
// for ackedFor, ackedMost of a group at most and ackedInAll of all groups.
const (
	ackedFor   = time.Minute
	ackedMost  = 16 << 10
	ackedInAll = 128 << 10
)

// ackedOnce is a message that a member here ACKed.
type ackedOnce struct {
	message
	at time.Time
}

// remember that a message was ACKed. At a bound the group's oldest are forgotten: that costs a
// redelivery at most.
func (g *Groups) remember(s *share, m message) {
	if len(s.acked) == 0 {
		s.forgetAt = g.now.Add(ackedFor)
		defer g.planShare(s)
	}
	s.acked = append(s.acked, ackedOnce{m, g.now})
	g.ackedHere++
	for len(s.acked) > ackedMost || g.ackedHere > ackedInAll && len(s.acked) > 1 {
		s.acked = s.acked[1:]
		g.ackedHere--
	}
}

// forgetEvery is how long ACKs gather that are forgotten together.
const forgetEvery = time.Second

// forgetAcked drops what is older than ackedFor.
func (g *Groups) forgetAcked(s *share) {
	if len(s.acked) == 0 || g.now.Before(s.forgetAt) {
		return
	}
	s.forgetAt = g.now.Add(forgetEvery)
	n := 0
	for n < len(s.acked) && g.now.Sub(s.acked[n].at) >= ackedFor {
		n++
	}
	g.ackedHere -= n
	if s.acked = s.acked[n:]; len(s.acked) == 0 {
		s.acked = nil
		return
	}
	if at := s.acked[0].at.Add(ackedFor); at.After(s.forgetAt) {
		s.forgetAt = at
	}
}

// remembered is what was ACKed here, by topic.
func (s *share) remembered() (all []*meshv1.GroupAcked) {
	type log struct {
		topic string
		epoch uint64
	}
	of := map[log]*meshv1.GroupAcked{}
	for _, a := range s.acked {
		l := log{a.topic, a.epoch}
		if of[l] == nil {
			of[l] = &meshv1.GroupAcked{Topic: a.topic, Epoch: a.epoch}
			all = append(all, of[l])
		}
		of[l].Seqs = append(of[l].Seqs, a.seq)
	}
	return all
}
