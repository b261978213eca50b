// Package gaps holds what a client has still to be told of messages that will not come to it: one
// range of seqs of a position, with one reason.
package gaps

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Delay is how long a gap may go unreported on a quiet topic.
const Delay = 10 * time.Second

// Gap is the messages From to To, which will not come. The zero value is none.
type Gap struct {
	From, To uint64
	Due      int64 // when it is to be reported at the latest, in nanoseconds
	Code     wirev1.Code
}

// IsOpen reports whether there is a gap to be reported.
func (g *Gap) IsOpen() bool { return g.To > 0 }

// Takes reports whether messages from a seq on, missing for a reason, may become part of the gap.
func (g *Gap) Takes(from uint64, why wirev1.Code) bool {
	return !g.IsOpen() || g.Code == why && g.To+1 == from
}

// Add makes messages part of the gap, which Takes them. begun reports whether they are the first:
// it is due from then on.
func (g *Gap) Add(from, to uint64, why wirev1.Code, now int64) (begun bool) {
	if begun = !g.IsOpen(); begun {
		g.From, g.Code, g.Due = from, why, now+int64(Delay)
	}
	g.To = to
	return begun
}

// Precedes reports whether there is a gap that has to be reported before a message.
func (g *Gap) Precedes(seq uint64) bool { return g.IsOpen() && g.From < seq }
