package score

import "github.com/pushmesh/pushmesh/internal/expr"

const (
	// chunk is how many candidates are scored between two looks at the clock, at most.
	chunk = 32
	// chunkCost is how many steps that takes, unless a single candidate takes more: about a quarter
	// of a millisecond.
	chunkCost = 10_000
)

// block is the candidates that are being scored.
type block struct {
	from, to int
	// places of the candidates in [from, to) that are left after a filter without profiles, and
	// what expressions see of each.
	places []uint32
	inputs []expr.Input // none where there is no expression
	room   [chunk]uint32
	wanted [chunk]bool
	scores [chunk]float64
}

// next checks the candidates of the next block, and leaves out those that no profile gets.
func (j *Job) next() error {
	b := &j.block
	b.from, b.places = b.to, b.room[:0]
	for cost := 0; b.to < len(j.candidates) && b.to < b.from+chunk && cost < chunkCost; b.to++ {
		c := &j.candidates[b.to]
		cost += j.once + j.each + j.spec.weight(c)
		if err := c.Check(b.to); err != nil {
			return err
		}
		if b.inputs != nil {
			j.fill(&b.inputs[len(b.places)], c)
		}
		if j.filter != nil && !j.filter.OfProfile() {
			if pass, err := j.passes(b.to, &b.inputs[len(b.places)]); err != nil {
				return err
			} else if !pass {
				continue
			}
		}
		b.places = append(b.places, uint32(b.to))
	}
	return nil
}

// passes reports whether the filter lets a candidate pass.
func (j *Job) passes(candidate int, in *expr.Input) (bool, error) {
	pass, err := j.filter.passes(candidate, in)
	if err != nil && j.lenient {
		return false, nil
	}
	return pass, err
}

// fill has expressions see a candidate.
func (j *Job) fill(in *expr.Input, c *Candidate) {
	in.Features, in.Headers, in.Profile.Map = c.Features, c.Headers, nil
	in.Priority, in.Topic, in.ID = int64(c.Priority), c.Topic, c.ID
	in.Age, in.Now = c.age(j.now), j.now
	in.SetPayload(c.Payload)
}

// scoreFor scores the block for one profile.
func (j *Job) scoreFor(profile int) error {
	b, t := &j.block, &j.one[profile]
	some, err := j.choose(t)
	if err != nil || !some {
		return err
	}
	scores, wanted := b.scores[:len(b.places)], b.wanted[:len(b.places)]
	if err := j.scorer.score(profile, wanted, scores); err != nil {
		return err
	}
	for i, place := range b.places {
		if !wanted[i] {
			continue
		}
		if !finite(scores[i]) {
			if j.lenient {
				continue
			}
			return invalid("candidate %d: its score is not finite", place)
		}
		j.pairs++
		t.best.offer(Place{place, scores[i]}, t.keep)
	}
	return nil
}

// choose marks which of the block's places a profile wants, and notes what the filter leaves out.
func (j *Job) choose(t *target) (some bool, err error) {
	b, k := &j.block, 0
	for i := b.from; i < b.to; i++ {
		may, pass := t.may(uint32(i)), false
		if left := k < len(b.places) && b.places[k] == uint32(i); left {
			pass = may
			if may && j.filter != nil && j.filter.OfProfile() {
				b.inputs[k].Profile.Map = t.Features
				if pass, err = j.passes(i, &b.inputs[k]); err != nil {
					return false, err
				}
			}
			b.wanted[k] = pass
			k++
		}
		if may && !pass {
			t.filtered = append(t.filtered, uint32(i))
		}
		some = some || pass
	}
	return some, nil
}

// weight of a candidate: the steps that checking what it carries takes, and parsing its payload
// where expressions look at it, once for all profiles.
func (s *Spec) weight(c *Candidate) int {
	steps := 2 + c.Features.Len() + len(c.Vector)/16
	if n := len(c.Payload); s.payload && n <= expr.MaxPayload {
		steps += n / 8
	}
	return steps
}
