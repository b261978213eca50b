package sendq

import "math"

// Mark is what the Message of a ranked subscription says beside: 0 nothing, Unranked, or the bits
// of its score.
type Mark uint64

// Unranked is no score: those are finite.
const Unranked = Mark(0x7ff8_0000_0000_0001)

// encoded is no score either: the item's bytes have all that differs for its subscriber.
const encoded = Mark(0x7ff8_0000_0000_0002)

// Scored is the mark of a score.
func Scored(score float64) Mark { return Mark(math.Float64bits(score)) }

// of is the score, and whether the message should have had one.
func (m Mark) of() (score float64, isUnranked bool) {
	if m == Unranked {
		return 0, true
	}
	return math.Float64frombits(uint64(m)), false
}
