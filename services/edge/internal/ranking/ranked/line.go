package ranked

import (
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Outcome is what becomes of a message that a track has come to.
type Outcome uint8

// Outcomes.
const (
	Wanted   Outcome = iota
	Had              // the client has settled it, or has it in its window
	Expired          // its time has passed
	Filtered         // no content filter of its subscriptions wants it
)

// Track is the delivery of a topic to a member, as far as an order is concerned.
type Track interface {
	Outcome(m *exchange.Message) Outcome
	// WantsAll reports whether it wants every message from a seq to another, without a look at
	// each.
	WantsAll(from, to uint64) bool
	// Gap names messages that will not come, and Expire one that has expired.
	Gap(from, to uint64, why wirev1.Code)
	Expire(m *exchange.Message)
}

// isWantedWhole reports whether a track that stands at pos wants every message of a ranking.
func (k *Ranking[M]) isWantedWhole(pos uint64, t Track) bool {
	ms := k.messages
	return k.plain && pos+1 == ms[0].Seq && t.WantsAll(ms[0].Seq, ms[len(ms)-1].Seq)
}

// Line is messages to be put into the order in which a member is handed them.
type Line[M any] struct {
	ranking  *Ranking[M] // nil: they are not ranked
	member   int         // its place in that
	messages []*exchange.Message
}

// Unranked is a line of messages that are not ranked.
func Unranked[M any](messages []*exchange.Message) Line[M] { return Line[M]{messages: messages} }

// LineUp puts the messages of a line into a member's order, names those that it does not get, and
// moves on behind all of them, from pos to at.
func (r *Room[M]) LineUp(l Line[M], s *State[M], pos uint64, t Track) (at uint64) {
	k := l.ranking
	var answer exchange.RankedMember
	o, skips := Order{From: pos + 1}, false
	switch {
	case k == nil:
	case k.answer.Err != nil:
		o.Mark = sendq.Unranked
	default:
		answer, skips = k.answer.Members[l.member], k.skipsRest()
	}
	r.best = r.best[:0]
	o.Best = make([]Next, len(answer.Best))
	for i, b := range answer.Best {
		r.best = append(r.best, b.Place)
		o.Best[i] = Next{Seq: l.messages[b.Place].Seq, Mark: sendq.Scored(b.Score)}
	}
	slices.Sort(r.best)
	var rest int
	if k != nil && len(answer.Filtered) == 0 && k.isWantedWhole(pos, t) {
		at, rest = r.lineUpAll(&o, k, skips, t)
	} else {
		at, rest = r.lineUpEach(&o, l.messages, answer.Filtered, skips, pos, t)
	}
	if o.Mark == sendq.Unranked {
		r.cfg.Delivery.Unranked(code.Of(k.answer.Err), rest)
	}
	if back := s.Order.Best; len(back) > 0 { // what was put back meanwhile
		o.Best = append(back, o.Best...)
	}
	s.Order = o
	return at
}

// lineUpEach goes over the messages one by one, and says how many come behind the best.
func (r *Room[M]) lineUpEach(o *Order, messages []*exchange.Message, filtered []uint32, skips bool, pos uint64, t Track) (at uint64, rest int) {
	for i, m := range messages {
		if m.Seq <= pos {
			continue
		}
		if m.Seq > pos+1 && rest == 0 { // behind one that is handed on it is named in its turn
			t.Gap(pos+1, m.Seq-1, wirev1.Code_CODE_RETENTION)
		}
		pos = m.Seq
		is := t.Outcome(m)
		_, isBest := slices.BinarySearch(r.best, uint32(i))
		_, isFiltered := slices.BinarySearch(filtered, uint32(i))
		switch {
		case isBest: // what has expired since is named once it is its turn
		case is == Expired:
			t.Expire(m)
		case is == Filtered, is == Wanted && isFiltered:
			t.Gap(m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		case is == Wanted && skips:
			t.Gap(m.Seq, m.Seq, wirev1.Code_CODE_RANKED_OUT)
		case is == Wanted:
			if rest++; rest == 1 {
				o.From = m.Seq
			}
			continue
		}
		o.Skip = append(o.Skip, m.Seq)
	}
	r.cfg.Cost.Add(2 * len(messages))
	if o.To = pos; rest == 0 {
		o.From, o.To, o.Skip = 0, 0, nil
	}
	return pos, rest
}

// lineUpAll is lineUpEach for a track that wants all messages of a ranking: only the best are
// looked at, by their places.
func (r *Room[M]) lineUpAll(o *Order, k *Ranking[M], skips bool, t Track) (at uint64, rest int) {
	first, last := o.From, o.From+uint64(len(k.messages))-1
	next := first
	for _, place := range r.best {
		seq := first + uint64(place)
		if skips && seq > next {
			t.Gap(next, seq-1, wirev1.Code_CODE_RANKED_OUT)
		}
		if !skips {
			o.Skip = append(o.Skip, seq)
		}
		next = seq + 1
	}
	if skips && next <= last {
		t.Gap(next, last, wirev1.Code_CODE_RANKED_OUT)
	}
	r.cfg.Cost.Add(len(r.best) * walk.ItemsPerUnit) // a gap is a frame
	if o.To = last; skips || len(r.best) == len(k.messages) {
		o.From, o.To, o.Skip = 0, 0, nil
	}
	return last, len(k.messages) - len(r.best)
}
