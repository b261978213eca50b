package score

import (
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/vector"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// embedding is EmbeddingScorer.
type embedding struct{ cosine bool }

func compileEmbedding(s *pushmeshv1.EmbeddingScorer) (*embedding, error) {
	switch s.GetMetric() {
	case pushmeshv1.EmbeddingScorer_METRIC_DOT:
		return &embedding{}, nil
	case pushmeshv1.EmbeddingScorer_METRIC_COSINE:
		return &embedding{cosine: true}, nil
	}
	return nil, invalid("embedding: metric %d is not known", s.GetMetric())
}

func checkVector(v []float32) error {
	if len(v) > MaxDimensions {
		return fmt.Errorf("%d dimensions, at most %d", len(v), MaxDimensions)
	}
	for i, x := range v {
		if x-x != 0 { // NaN and the infinities
			return fmt.Errorf("dimension %d must be finite", i)
		}
	}
	return nil
}

// cost: by then the candidates' vectors are counted; a dot product of 4,096 dimensions takes some
// 250 ns.
func (e *embedding) cost() (once, each int) { return 1, 4 }

// explainCost is none: dimensions have no names.
func (e *embedding) explainCost() int { return 0 }

func (e *embedding) begin(j *Job) (scorer, error) {
	p := &projection{embedding: e, job: j}
	for i := range j.one {
		v := j.one[i].Vector
		switch {
		case len(v) == 0:
		case p.dim == 0:
			p.dim = len(v)
		case len(v) != p.dim:
			return nil, invalid("profile_vector: %d dimensions, that of another profile has %d", len(v), p.dim)
		}
	}
	if p.dim == 0 && len(j.one) > 0 {
		return nil, invalid("embedding: profile_vector is missing")
	}
	if e.cosine {
		p.profiles = make([]float32, len(j.one))
		for i := range j.one {
			p.profiles[i] = vector.Norm(j.one[i].Vector)
		}
	}
	return p, nil
}

// projection is an embedding scorer at work on a job. A candidate or a profile without a vector is
// one of zeros.
type projection struct {
	*embedding
	job      *Job
	dim      int
	profiles []float32 // norms, for cosines

	rows  []float32 // the block's vectors
	norms [chunk]float32
	dots  [chunk]float32
}

func (p *projection) block(places []uint32) error {
	if n := len(places) * p.dim; cap(p.rows) < n {
		p.rows = make([]float32, 0, n)
	}
	p.rows = p.rows[:len(places)*p.dim]
	for i, place := range places {
		v, row := p.job.candidates[place].Vector, p.rows[i*p.dim:(i+1)*p.dim]
		if len(v) == 0 {
			clear(row)
		} else if copy(row, v); len(v) != p.dim {
			return invalid("candidate %d: vector: %d dimensions, that of the profile has %d", place, len(v), p.dim)
		}
		if p.cosine {
			p.norms[i] = vector.Norm(row)
		}
	}
	return nil
}

var errDimensions = errors.New("vectors of other dimensions than the block's")

func (p *projection) score(profile int, _ []bool, out []float64) error {
	v := p.job.one[profile].Vector
	if len(v) == 0 {
		clear(out)
		return nil
	}
	dots := p.dots[:len(out)]
	if err := vector.Dots(p.rows, p.dim, v, dots); err != nil {
		return errors.Join(errDimensions, err)
	}
	for i, dot := range dots {
		out[i] = float64(dot)
		if p.cosine {
			out[i] = float64(cosine(dot, p.norms[i], p.profiles[profile]))
		}
	}
	return nil
}

// cosine is the dot product by the norms, and 0 where one of them is 0.
func cosine(dot, a, b float32) float32 {
	if of := float64(a) * float64(b); of != 0 {
		return float32(float64(dot) / of)
	}
	return 0
}

func (p *projection) explain(int, int) []*Contribution { return nil }
