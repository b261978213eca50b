package claims

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// step is every state in which a resource may be after an operation that was answered so; none: it
// can't have happened in this state. One of unknown outcome may have happened now, or not; that it
// happens later is for porcupine, which tries every moment.
func step(r Rules, s *state, op *Op) (next []*state) {
	for _, s := range ended(r, s, op.Return) {
		if op.Unknown() {
			next = append(next, s)
		}
		did, ok := s.clone().do(r, op)
		if ok || op.Unknown() {
			next = append(next, did.sealed())
		}
	}
	return next
}

// ended is the state, and what it may have become by t because holds, offers or waits ended by
// themselves: any of those whose time has come, or none.
func ended(r Rules, s *state, t int64) []*state {
	all, known := []*state{s}, map[string]bool{s.key: true}
	due := func(ends int64) bool { return ends != 0 && ends <= t }
	add := func(s *state) {
		if s.sealed(); !known[s.key] {
			known[s.key] = true
			all = append(all, s)
		}
	}
	for i := 0; i < len(all); i++ { //nolint:intrange // what is added is looked at too
		for j, h := range all[i].holds {
			first := h.ends
			if !h.taken && h.offer != 0 {
				first = min(first, h.offer)
			}
			if due(first) {
				s := all[i].clone()
				s.holds = slices.Delete(s.holds, j, j+1)
				s.promote(r, first)
				add(s)
			}
		}
		for j, w := range all[i].line {
			if due(w.ends) {
				s := all[i].clone()
				s.line = slices.Delete(s.line, j, j+1)
				add(s)
			}
		}
	}
	return all
}

// do changes s as the operation does, and reports whether the answer is the one that it gives.
func (s *state) do(r Rules, op *Op) (*state, bool) {
	h, w := s.holdOf(op.Owner), s.waitOf(op.Owner)
	a := op.Answer
	switch op.Kind {
	case Acquire:
		return s.acquire(r, op, h, w)
	case Renew:
		if h < 0 || s.holds[h].token == 0 || s.holds[h].token != op.Token {
			// who has not been told a token can't send it
			return s, a.NotHeld
		}
		s.took(h)
		s.holds[h].ends = max(s.holds[h].ends, r.after(op.Call, r.TTL))
		return s, !a.NotHeld && a.State == wirev1.ClaimState_STATE_GRANTED && a.Token == op.Token && s.counts(a)
	case Release:
		return s.release(r, op, h)
	case Leave:
		return s.leave(r, op, h, w)
	case Check:
		return s.check(r, op, h, w)
	case Told:
		return s, h >= 0 && s.knows(h, a.Token)
	}
	return s, false
}

func (s *state) acquire(r Rules, op *Op, h, w int) (*state, bool) {
	a := op.Answer
	if h < 0 && w < 0 {
		switch {
		case len(s.holds) < r.Holders && len(s.line) == 0:
			s.grant(r, op.Owner, op.Call, true)
			h = len(s.holds) - 1
		case op.NoWait:
			return s, a.State == wirev1.ClaimState_STATE_HELD_BY_OTHER && s.seen(a)
		default:
			w = s.join(wait{op.Owner, op.Priority, r.after(op.Call, r.WaitTTL)}) - 1
		}
	}
	return s.place(r, op, h, w)
}

// place is the answer to one who has a place: a hold, taken up by this, or a wait, in which it was
// heard of.
func (s *state) place(r Rules, op *Op, h, w int) (*state, bool) {
	a := op.Answer
	if h >= 0 {
		s.took(h)
		if op.Unknown() {
			return s, true
		}
		return s, a.State == wirev1.ClaimState_STATE_GRANTED && s.knows(h, a.Token) && s.counts(a)
	}
	s.line[w].ends = max(s.line[w].ends, r.after(op.Call, r.WaitTTL))
	return s, a.State == wirev1.ClaimState_STATE_QUEUED && int(a.Position) == w+1 && len(s.holds) > 0 && a.Holder == s.holds[0].owner && s.counts(a)
}

func (s *state) check(r Rules, op *Op, h, w int) (*state, bool) {
	if h < 0 && w < 0 {
		return s, s.seen(op.Answer)
	}
	return s.place(r, op, h, w)
}

func (s *state) release(r Rules, op *Op, h int) (*state, bool) {
	a := op.Answer
	if h < 0 || s.holds[h].token == 0 || s.holds[h].token != op.Token {
		return s, a.NotHeld && s.seen(a)
	}
	s.holds = slices.Delete(s.holds, h, h+1)
	if op.Successor != "" {
		if i := s.waitOf(op.Successor); i >= 0 {
			s.line = slices.Delete(s.line, i, i+1)
		}
		s.grant(r, op.Successor, op.Call, false)
	}
	s.promote(r, op.Call)
	return s, !a.NotHeld && a.State == wirev1.ClaimState_STATE_RELEASED
}

// leave of a hold that was told by push, and not taken up as far as the model knows, may meet
// either: whoever keeps a stream asks again now and then, which takes it up.
func (s *state) leave(r Rules, op *Op, h, w int) (*state, bool) {
	a := op.Answer
	given := a.State == wirev1.ClaimState_STATE_RELEASED || op.Unknown()
	switch {
	case w >= 0:
		s.line = slices.Delete(s.line, w, w+1)
		return s, given
	case h >= 0 && !s.holds[h].taken && given:
		s.holds = slices.Delete(s.holds, h, h+1)
		s.promote(r, op.Call)
		return s, true
	case h >= 0:
		s.took(h)
		return s, a.State == wirev1.ClaimState_STATE_GRANTED && s.knows(h, a.Token) && s.counts(a)
	}
	return s, s.seen(a)
}
