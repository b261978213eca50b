package state

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// Verdict is what content filters say of a message.
type Verdict uint8

// The verdicts.
const (
	Passes Verdict = iota
	Filtered
	Unjudged // it came before the filter; the log's reader judges it again
)

// Judge reports whether any of the track's subscriptions wants a message.
func (p *Tracks) Judge(t *Track, m *exchange.Message) Verdict {
	if t.Kind == KindPlain {
		return Passes
	}
	v := m.Verdicts.Load()
	all := t.First.Judge(m, v)
	for i := 0; i < len(t.Also) && all != Passes; i++ {
		if one := t.Also[i].Judge(m, v); one != Filtered {
			all = one
		}
	}
	p.Cost.Add(len(t.Also))
	return all
}

// Judge is what the subscription's content filter says of a message with these verdicts. What it
// must not echo passes none.
func (s *Subscription) Judge(m *exchange.Message, v *exchange.Verdicts) Verdict {
	switch {
	case !s.Picky():
		return Passes
	case s.Origin != 0 && m.Origin == s.Origin:
		return Filtered
	case !s.Filtered:
		return Passes
	}
	pass, known := v.Of(s.Where)
	switch {
	case pass:
		return Passes
	case known:
		return Filtered
	}
	return Unjudged
}

// Wanting are the client's numbers of the subscriptions that want a message, which one of them
// does.
func (t *Track) Wanting(dst []uint32, m *exchange.Message) []uint32 {
	v := m.Verdicts.Load()
	if t.First.Open && t.First.Judge(m, v) == Passes {
		dst = append(dst, t.First.ID)
	}
	for _, s := range t.Also {
		if s.Open && s.Judge(m, v) == Passes {
			dst = append(dst, s.ID)
		}
	}
	if len(dst) == 0 {
		return t.IDs(dst) // they ended since it was queued
	}
	return dst
}

// WantedBy reports whether one of the subscriptions wants a message.
func WantedBy(subs []*Subscription, m *exchange.Message) bool {
	v := m.Verdicts.Load()
	for _, s := range subs {
		if s.Judge(m, v) == Passes {
			return true
		}
	}
	return false
}

// WantAlike reports whether two subscriptions that share messages want the same ones, as far as is
// known.
func WantAlike(a, b *Subscription) bool {
	return a == b || !a.Picky() && !b.Picky() || a.Origin == b.Origin && a.Filtered == b.Filtered && a.Where == b.Where && (a.Where != 0 || !a.Filtered)
}

// MostOf is how many of the best the subscriptions want together.
func MostOf(subs []*Subscription) (topK uint32) {
	for _, s := range subs {
		topK = max(topK, s.TopK)
	}
	return topK
}
