// Package score ranks candidates for one or many: filter, one scorer, diversify, best K. It is pure: no I/O, no goroutine, no clock beyond the slices'
// own, the same result for the same request. The formulas are those of rank.proto.
package score

import (
	"fmt"
	"math"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a ranking.
const (
	MaxCandidates = 100_000
	MaxPriority   = 9
	// MaxPairs of a candidate and a profile.
	MaxPairs = 10_000_000
)

// Scoring is what a RankRequest and a namespace's RankPolicy have in common.
type Scoring interface {
	GetWeighted() *pushmeshv1.WeightedScorer
	GetExpression() *pushmeshv1.ExpressionScorer
	GetEmbedding() *pushmeshv1.EmbeddingScorer
	GetModel() *pushmeshv1.ModelScorer
	GetFilter() string
	GetDiversify() *pushmeshv1.Diversify
}

// Spec is a Scoring that was checked and made ready. Many jobs may use it at once.
type Spec struct {
	scorer    maker
	diversify *diversify
}

// maker makes the scorer of a job, and says what it costs to score one candidate for one profile, in steps of some tens of nanoseconds.
type maker interface {
	begin(j *Job) (scorer, error)
	cost() int
}

// scorer scores the candidates of a job, block by block.
type scorer interface {
	// block gets ready for the candidates [from, to), at most chunk.
	block(from, to int) error
	// score puts the score of each candidate of the block for one profile into out.
	score(profile int, out []float64) error
	// explain says what made a score, in any order.
	explain(candidate, profile int) []*pushmeshv1.RankResponse_Contribution
}

// Compile checks a Scoring. Errors are INVALID_ARGUMENT, or UNSUPPORTED.
func Compile(s Scoring) (*Spec, error) {
	spec := &Spec{}
	var err error
	if spec.scorer, err = compileScorer(s); err != nil {
		return nil, err
	}
	if s.GetFilter() != "" {
		return nil, unsupported("filter is not supported")
	}
	spec.diversify, err = compileDiversify(s.GetDiversify())
	return spec, err
}

func compileScorer(s Scoring) (maker, error) {
	given := 0
	for _, set := range []bool{s.GetWeighted() != nil, s.GetExpression() != nil, s.GetEmbedding() != nil, s.GetModel() != nil} {
		if set {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, invalid("no scorer: one of weighted, expression, embedding and model must be set")
	case given > 1:
		return nil, invalid("%d scorers: one of weighted, expression, embedding and model must be set", given)
	case s.GetWeighted() != nil:
		return compileWeighted(s.GetWeighted())
	default:
		return nil, unsupported("the only scorer is weighted")
	}
}

// Cost estimates the work of a ranking, in steps of some tens of nanoseconds: what each candidate carries is checked, and each is scored for each profile.
func (s *Spec) Cost(candidates []*pushmeshv1.Candidate, profiles int) int {
	cost := 0
	per := (2 + s.scorer.cost()) * profiles
	for _, c := range candidates {
		cost += 2 + per + len(c.GetFeatures())
	}
	return cost
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func unsupported(what string) error { return code.New(wirev1.Code_CODE_UNSUPPORTED, what) }

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}
