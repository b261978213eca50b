package ranking

import (
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	// someMessages become candidates between two looks at the clock, and someMembers are looked at.
	someMessages = 16
	someMembers  = 64
)

// preparation is a cpupool.Task: messages become candidates, once for all members, and members that
// would get the same become one.
type preparation struct {
	k      *ranking
	filled int // of the ranking's candidates
	made   converter
	member int // looked at
	seen   map[likeness]int32
}

// likeness of members: what decides what they get, but for how many.
type likeness struct {
	profile *exchange.Profile
	places  *uint32
	count   int
}

// Step implements cpupool.Task.
func (p *preparation) Step(slice time.Duration) (done bool, err error) {
	for began := time.Now(); ; {
		if done, err := p.some(); done || err != nil {
			return done, err
		}
		if time.Since(began) >= slice {
			return false, nil
		}
	}
}

func (p *preparation) some() (done bool, err error) {
	k := p.k
	switch {
	case k.scoring == nil:
		return false, p.begin()
	case p.filled < len(k.candidates):
		for end := min(p.filled+someMessages, len(k.candidates)); p.filled < end; p.filled++ {
			p.made.fill(&k.candidates[p.filled], k.asked.Messages[p.filled])
		}
		if p.filled == len(k.candidates) {
			p.settle()
		}
		return false, nil
	case p.member < len(k.asked.Members):
		for end := min(p.member+someMembers, len(k.asked.Members)); p.member < end; p.member++ {
			p.join(&k.asked.Members[p.member])
		}
		return false, nil
	}
	k.results = make([]exchange.RankedMember, len(k.distinct))
	if !k.r.more(k, p.made.bytes) {
		return false, overloaded()
	}
	k.encoded = p.made.bytes
	return true, nil
}

func (p *preparation) begin() (err error) {
	k := p.k
	if k.scoring, err = k.r.scorings.get(k.asked.Policy, k.began); err != nil {
		return err
	}
	p.made = newConverter(k.scoring.needs)
	k.candidates = make([]score.Candidate, len(k.asked.Messages))
	k.of, p.seen = make([]int32, 0, len(k.asked.Members)), map[likeness]int32{}
	return nil
}

// settle on the dimensions of the ranking: vectors of other lengths count as none.
func (p *preparation) settle() {
	if !p.made.needs.Vector {
		return
	}
	k := p.k
	k.dimensions = dimensions(k.candidates)
	for i := range k.candidates {
		if len(k.candidates[i].Vector) != k.dimensions {
			k.candidates[i].Vector = nil
		}
	}
}

// join makes a member one of those that are ranked for.
func (p *preparation) join(m *exchange.RankMember) {
	k := p.k
	if m.Places != nil && len(m.Places) == 0 {
		k.of = append(k.of, -1)
		return
	}
	like := likeness{count: len(m.Places)}
	if p.made.needs.Personal() {
		like.profile = m.Profile
	}
	if m.Places != nil {
		like.places = &m.Places[0]
	}
	at, known := p.seen[like]
	if !known {
		at = int32(len(k.distinct))
		p.seen[like] = at
		k.distinct = append(k.distinct, p.profile(like.profile))
		k.distinct[at].Candidates = m.Places
	}
	k.distinct[at].Keep = max(k.distinct[at].Keep, topK(m))
	k.of = append(k.of, at)
}

// profile is what the scoring needs of a member's, without what a scorer would refuse.
func (p *preparation) profile(of *exchange.Profile) (out score.Profile) {
	if of == nil {
		return out
	}
	if p.made.needs.Profile {
		out.Features = clean(of.Features)
	}
	if p.made.needs.Vector && len(of.Vector) == p.k.dimensions && allFinite(of.Vector) {
		out.Vector = of.Vector
	}
	p.made.bytes += perCandidate + 4*len(out.Vector)
	for name := range out.Features {
		p.made.bytes += len(name) + 16
	}
	return out
}

// clean are features without those that a scorer would refuse.
func clean(features map[string]float64) map[string]float64 {
	bad := func(name string, v float64) bool { return v-v != 0 || !utf8.ValidString(name) }
	for name, v := range features {
		if !bad(name, v) {
			continue
		}
		good := make(map[string]float64, len(features))
		for name, v := range features {
			if !bad(name, v) {
				good[name] = v
			}
		}
		return good
	}
	return features
}
