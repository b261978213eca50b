package exchange

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
)

// Ranks is what a loop asks of ranking. Its methods never block.
type Ranks interface {
	// Gather has the loop told, by Gathered, that a ranking's candidates have gathered for its
	// window.
	Gather(g Gathering)
	// Rank has messages ranked for connections; answered by Ranked, once, within about the deadline
	// of the policy. The ranking is not changed any more.
	Rank(r *Ranking)
}

// Gathering names candidates that gather on a loop.
type Gathering struct {
	Loop   uint16
	Serial uint64 // the loop's
	Window time.Duration
}

// Gathered answers Gather.
type Gathered struct{ Serial uint64 }

// Profile is what a connection's messages are ranked for. It is immutable.
type Profile struct {
	Features map[string]float64
	Vector   []float32
}

// NewProfile keeps features and vector, which are changed no more; nil where there are neither.
func NewProfile(features map[string]float64, vector []float32) *Profile {
	if len(features) == 0 && len(vector) == 0 {
		return nil
	}
	return &Profile{Features: features, Vector: vector}
}

// Ranking is messages of one topic, ranked for some connections of a loop.
type Ranking struct {
	Loop   uint16
	Serial uint64 // the loop's
	Topic  string
	// Policy of the topic; it has a rank policy.
	Policy *policy.Policy
	// Messages have Policy's max_candidates at most.
	Messages []*Message
	Members  []RankMember
}

// RankMember is one that a ranking is for.
type RankMember struct {
	// Profile; nil: an empty one.
	Profile *Profile
	// TopK is at least 1.
	TopK uint32
	// Places in Ranking.Messages that it may get, ascending; nil: all.
	Places []uint32
}

// Ranked answers Rank. With Err, which has the code that the delivery without ranking is counted
// under, Members is nil.
type Ranked struct {
	Serial uint64
	// Members in the order of Ranking.Members.
	Members []RankedMember
	Err     error
}

// RankedMember has places in Ranking.Messages.
type RankedMember struct {
	// Best places, best first, TopK at most.
	Best []RankedPlace
	// Filtered places, ascending: the policy's filter left them out.
	Filtered []uint32
}

// RankedPlace is a message among the best.
type RankedPlace struct {
	Place uint32
	Score float64
}

func (Gathered) event() {}
func (Ranked) event()   {}
