package claims

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Ops is how many values wirev1.Claim_Op has.
const Ops = 6

// Stats of a desk.
type Stats struct {
	Held     int64            // resources that connections have a place at, or watch, now
	Pushes   uint64           // states of them that were told unasked
	Requests [Ops]code.Counts // by wirev1.Claim_Op, by what came of them
}

// Stats of now.
func (d *Desk) Stats() *Stats { return &d.stats }

// Count counts a request by what came of it.
func (s *Stats) Count(op wirev1.Claim_Op, c wirev1.Code) {
	if op >= 0 && op < Ops {
		s.Requests[op].Add(c, 1)
	}
}
