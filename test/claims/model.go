package claims

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Rules are the settings of a policy that the model must know.
type Rules struct {
	Holders int
	// TTL of every hold, WaitTTL and OfferTTL; 0: longer than any history, so nothing ever ends by
	// itself.
	TTL, WaitTTL, OfferTTL time.Duration
	// Early and Late are by how much a store's clock may be ahead of a caller's, and behind it.
	Early, Late time.Duration
}

// state of one resource, as far as it is known: a value, never changed once made.
type state struct {
	holds []hold // in the order of their grants
	line  []wait // who is next first
	last  uint64 // the highest token that was seen
	key   string
}

// hold whose token is known, or lies between two others that are: tokens grow in the order of
// grants.
type hold struct {
	owner        string
	token        uint64 // 0: nobody has said yet
	above, below uint64 // bounds of one that is not known; below 0: none
	taken        bool   // told to its owner, by an answer
	ends, offer  int64  // µs, not before that; offer: where it is not taken up. 0: never
}

type wait struct {
	owner    string
	priority uint32
	ends     int64
}

// after is before when something doesn't end that began at t or later; 0: it never ends.
func (r Rules) after(t int64, d time.Duration) int64 {
	if d == 0 {
		return 0
	}
	return t + (d - r.Early).Microseconds()
}

// sealed gives a state its key: equal states have equal ones.
func (s *state) sealed() *state {
	var b strings.Builder
	fmt.Fprint(&b, s.last)
	for _, h := range s.holds {
		fmt.Fprint(&b, "|", h)
	}
	for _, w := range s.line {
		fmt.Fprint(&b, "&", w)
	}
	s.key = b.String()
	return s
}

func (s *state) clone() *state {
	return &state{holds: slices.Clone(s.holds), line: slices.Clone(s.line), last: s.last}
}

func (s *state) holdOf(owner string) int {
	return slices.IndexFunc(s.holds, func(h hold) bool { return h.owner == owner })
}

func (s *state) waitOf(owner string) int {
	return slices.IndexFunc(s.line, func(w wait) bool { return w.owner == owner })
}

// grant gives an owner a hold at t; taken where the answer tells it.
func (s *state) grant(r Rules, owner string, t int64, taken bool) {
	s.holds = append(s.holds, hold{owner: owner, above: s.last, taken: taken, ends: r.after(t, r.TTL), offer: r.after(t, min(r.OfferTTL, r.WaitTTL))})
}

// promote grants to those who are next, as far as there is room, at t.
func (s *state) promote(r Rules, t int64) {
	for len(s.line) > 0 && len(s.holds) < r.Holders {
		s.grant(r, s.line[0].owner, t, false)
		s.line = s.line[1:]
	}
}

// join puts an owner at the end of its priority's line, and says at which position it is.
func (s *state) join(w wait) int {
	i := slices.IndexFunc(s.line, func(o wait) bool { return o.priority < w.priority })
	if i < 0 {
		i = len(s.line)
	}
	s.line = slices.Insert(s.line, i, w)
	return i + 1
}

// knows takes note of the token that hold i has; false: it can't have that one.
func (s *state) knows(i int, token uint64) bool {
	h := &s.holds[i]
	if h.token != 0 || token == 0 {
		return h.token == token && token != 0
	}
	if token <= h.above || h.below != 0 && token >= h.below {
		return false
	}
	h.token, h.above, h.below = token, 0, 0
	s.last = max(s.last, token)
	for j := range s.holds {
		o := &s.holds[j]
		switch {
		case o.token != 0:
		case j < i && (o.below == 0 || token < o.below):
			o.below = token
		case j > i && token > o.above:
			o.above = token
		}
	}
	return true
}

// took has an owner's hold taken up.
func (s *state) took(i int) { s.holds[i].taken, s.holds[i].offer = true, 0 }

// counts reports whether an answer counts holders and waiters as they are.
func (s *state) counts(a Answer) bool {
	return int(a.Holding) == len(s.holds) && int(a.Waiting) == len(s.line)
}

// seen reports whether an answer says of the resource what is so, to one who has no place.
func (s *state) seen(a Answer) bool {
	switch a.State {
	case wirev1.ClaimState_STATE_FREE:
		return len(s.holds) == 0 && s.counts(a)
	case wirev1.ClaimState_STATE_HELD_BY_OTHER:
		return len(s.holds) > 0 && a.Holder == s.holds[0].owner && s.counts(a)
	default:
		return false
	}
}
