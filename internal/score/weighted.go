package score

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// weighted is WeightedScorer's formula.
type weighted struct {
	// sorted by feature: floating-point sums depend on their order, results must not
	weights    []term
	affinities []term
	bias       float64
	priority   float64
	halfLife   float64 // seconds; 0: no decay
	now        time.Time
}

// term is one feature with its factor.
type term struct {
	feature string
	weight  float64
}

// of is what the term adds to a candidate's sum.
func (t *term) of(c *Candidate) float64 {
	v, _ := c.Features.Get(t.feature)
	return t.weight * v
}

func compileWeighted(w *pushmeshv1.WeightedScorer) (*weighted, error) {
	if !finite(w.GetBias()) || !finite(w.GetPriorityWeight()) {
		return nil, invalid("bias and priority_weight must be finite")
	}
	s := &weighted{bias: w.GetBias(), priority: w.GetPriorityWeight()}
	if w.GetNow() != nil {
		if err := w.GetNow().CheckValid(); err != nil {
			return nil, invalid("now: %v", err)
		}
		s.now = w.GetNow().AsTime()
	}
	if h := w.GetHalfLife(); h != nil {
		if h.CheckValid() != nil || h.AsDuration() < 0 {
			return nil, invalid("half_life must be a duration of 0 or more")
		}
		s.halfLife = h.AsDuration().Seconds()
	}
	var err error
	if s.weights, err = terms("weight", w.GetWeights()); err != nil {
		return nil, err
	}
	s.affinities, err = terms("affinity", w.GetAffinities())
	return s, err
}

func terms(what string, m map[string]float64) ([]term, error) {
	out := make([]term, 0, len(m))
	for name, v := range m {
		if !finite(v) {
			return nil, invalid("%s of %.64q must be finite", what, name)
		}
		out = append(out, term{name, v})
	}
	slices.SortFunc(out, func(a, b term) int { return cmp.Compare(a.feature, b.feature) })
	return out, nil
}

func (w *weighted) cost() (once, each int) { return 1 + len(w.weights), 1 + len(w.affinities) }

func (w *weighted) explainCost() int { return 4 * (1 + len(w.weights) + len(w.affinities)) }

// weighing is a weighted scorer at work on a job.
type weighing struct {
	*weighted
	job     *Job
	factors [][]term // for each profile: affinities times what it has

	places []uint32
	sums   [chunk]float64 // what does not depend on the profile
	decay  [chunk]float64
}

func (w *weighted) begin(j *Job) (scorer, error) {
	g := &weighing{weighted: w, job: j, factors: make([][]term, len(j.one))}
	for i := range j.one {
		for _, t := range w.affinities {
			if v := j.one[i].Features[t.feature]; v != 0 {
				g.factors[i] = append(g.factors[i], term{t.feature, t.weight * v})
			}
		}
	}
	return g, nil
}

func (g *weighing) block(places []uint32) error {
	g.places = places
	for i, place := range places {
		c := &g.job.candidates[place]
		sum := g.bias
		for _, t := range g.weights {
			sum += t.of(c)
		}
		g.sums[i] = sum + g.priority*float64(c.Priority)
		g.decay[i] = g.decayOf(c)
	}
	return nil
}

// decayOf is 0.5^(age / half_life).
func (g *weighing) decayOf(c *Candidate) float64 {
	if g.halfLife == 0 {
		return 1
	}
	return math.Exp2(-c.age(g.job.now) / g.halfLife)
}

func (g *weighing) score(profile int, _ []bool, out []float64) error {
	factors := g.factors[profile]
	for i := range out {
		sum := g.sums[i]
		if len(factors) > 0 {
			c := &g.job.candidates[g.places[i]]
			for _, t := range factors {
				sum += t.of(c)
			}
		}
		out[i] = sum * g.decay[i]
	}
	return nil
}

func (g *weighing) explain(candidate, profile int) []*Contribution {
	c := &g.job.candidates[candidate]
	parts := contribute(nil, "", g.bias)
	parts = contribute(parts, "$priority", g.priority*float64(c.Priority))
	for _, all := range [][]term{g.weights, g.factors[profile]} {
		for _, t := range all {
			parts = contribute(parts, t.feature, t.of(c))
		}
	}
	return parts
}
