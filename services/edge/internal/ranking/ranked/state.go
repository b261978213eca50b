package ranked

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// State is where a member stands in the durable candidates of its topic.
type State[M any] struct {
	TopK  uint32 // of the best; 0: one of its subscriptions is not ranked
	Order Order  // in which it is handed messages
	// Joined is the serial of the ephemeral window that it joined last.
	Joined uint64
	// Level: the last range that was ranked for it reached the head of the log.
	Level bool

	asked *Ranking[M] // under way, or answered and not taken up
	place int         // of the member in that
}

// Forget forgets what was to be handed on.
func (s *State[M]) Forget() { s.asked, s.Order = nil, Order{} }

// Awaits reports whether the member waits for a ranking.
func (s *State[M]) Awaits(k *Ranking[M]) bool { return s.asked == k }

// Step is what a member does next.
type Step uint8

// Steps.
const (
	Wait   Step = iota // its ranking is under way
	TakeUp             // its ranking is answered
	Read               // it reads from the log
	LineUp             // the range that it holds is not ranked
	HandOn             // it is handed what is next in its order
)

// Step of a member, which holds a range of the log or not.
func (s *State[M]) Step(holdsRange bool) Step {
	_, ordered := s.Order.Next()
	switch {
	case s.asked != nil && !s.asked.answered:
		return Wait
	case s.asked != nil:
		return TakeUp
	case !holdsRange:
		return Read
	case !ordered:
		return LineUp
	}
	return HandOn
}

// TakeUp takes the answer that the member waited for: a line of its messages, and the range that
// they are of.
func (s *State[M]) TakeUp() (l Line[M], of *exchange.Range) {
	k := s.asked
	s.asked = nil
	return Line[M]{ranking: k, member: s.place, messages: k.messages}, k.of
}

// CandidatesOf makes a ranking of what a range of the log begins with.
func (r *Room[M]) CandidatesOf(e *exchange.Range, p *policy.Policy) *Ranking[M] {
	k := r.candidates(e.Topic, p, e.Messages[:min(len(e.Messages), p.RankCandidates())])
	k.of = e
	return k
}

// Ask makes a member, which stands at pos, one of a ranking; false where that has no candidates for
// it.
func (r *Room[M]) Ask(k *Ranking[M], s *State[M], m M, profile *exchange.Profile, pos uint64, t Track) bool {
	var places []uint32
	if !k.isWantedWhole(pos, t) {
		for i, x := range k.messages {
			if x.Seq > pos && t.Outcome(x) == Wanted {
				places = append(places, uint32(i))
			}
		}
		r.cfg.Cost.Add(len(k.messages))
		if len(places) == 0 {
			return false
		}
	}
	s.Level = k.messages[len(k.messages)-1].Seq == k.of.Head
	s.asked, s.place = k, len(k.members)
	k.add(m, profile, s.TopK, places)
	return true
}

// Find finds a message in the range that a member holds; nil: it holds none. elsewhere: it may be
// in another one; neither: the log has it no more.
func Find(e *exchange.Range, seq uint64) (m *exchange.Message, elsewhere bool) {
	if e == nil || e.From > seq {
		return nil, true
	}
	i, found := slices.BinarySearchFunc(e.Messages, seq, func(m *exchange.Message, seq uint64) int {
		switch {
		case m.Seq < seq:
			return -1
		case m.Seq > seq:
			return 1
		}
		return 0
	})
	if found {
		return e.Messages[i], false
	}
	return nil, i == len(e.Messages) && i > 0
}
