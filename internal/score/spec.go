// Package score ranks candidates for one or many: filter, one scorer, diversify, best K. It is
// pure: no I/O, no goroutine, no clock beyond the slices' own, the same result for the same
// request. The formulas are those of rank.proto.
package score

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a ranking.
const (
	MaxCandidates = 100_000
	MaxPriority   = 9
	// MaxPairs of a candidate and a profile.
	MaxPairs = 10_000_000
	// MaxDimensions of a vector.
	MaxDimensions = 4096
	// MaxExplained places of a profile.
	MaxExplained = 1000
)

// Unit of costs: what a step takes.
const Unit = 25 * time.Nanosecond

// maxExplain bounds what explaining one score may take, which is not cut into slices: about 3 ms.
const maxExplain = 120_000

// Scoring is what a RankRequest and a namespace's RankPolicy have in common.
type Scoring interface {
	GetWeighted() *pushmeshv1.WeightedScorer
	GetExpression() *pushmeshv1.ExpressionScorer
	GetEmbedding() *pushmeshv1.EmbeddingScorer
	GetModel() *pushmeshv1.ModelScorer
	GetFilter() string
	GetDiversify() *pushmeshv1.Diversify
}

// Parts are what a Scoring may refer to.
type Parts struct {
	// Expressions that were compiled; nil: each is compiled anew.
	Expressions *expr.Cache
	// Models; nil: there are none, and a ModelScorer is UNSUPPORTED.
	Models Models
}

// Models are those that a node has.
type Models interface {
	// Model by its name and version, 0: the newest, and the version that it has. Errors are
	// *code.Error.
	Model(name string, version uint64) (*trees.Model, uint64, error)
}

// Spec is a Scoring that was checked and made ready. Many jobs may use it at once.
type Spec struct {
	scorer    maker
	filter    *filter
	diversify *diversify
	now       time.Time // what age is counted to; zero: the job's
	model     uint64
	inputs    bool // expressions look at candidates
	payload   bool // and at their payloads
}

// maker makes the scorer of a job, and says what scoring costs, in steps.
type maker interface {
	begin(j *Job) (scorer, error)
	// cost of one candidate: once, and for each profile.
	cost() (once, each int)
	// explainCost is that of saying what made one score.
	explainCost() int
}

// scorer scores the candidates of a job, block by block.
type scorer interface {
	// block gets ready for candidates, chunk of them at most. places is valid until the next call.
	block(places []uint32) error
	// score puts the scores of the block's candidates for one profile into out; what is put where
	// wanted is not set does not matter.
	score(profile int, wanted []bool, out []float64) error
	// explain says what made a score, in any order.
	explain(candidate, profile int) []*Contribution
}

// Compile checks a Scoring and makes it ready. Errors are INVALID_ARGUMENT, UNSUPPORTED, or those
// of Models.
func Compile(s Scoring, parts Parts) (*Spec, error) {
	if err := oneScorer(s); err != nil {
		return nil, err
	}
	spec := &Spec{}
	var err error
	switch {
	case s.GetWeighted() != nil:
		var w *weighted
		if w, err = compileWeighted(s.GetWeighted()); err == nil {
			spec.scorer, spec.now = w, w.now
		}
	case s.GetExpression() != nil:
		var e *expression
		if e, err = compileExpression(s.GetExpression(), parts); err == nil {
			spec.scorer, spec.inputs, spec.payload = e, true, e.Uses("payload")
		}
	case s.GetEmbedding() != nil:
		spec.scorer, err = compileEmbedding(s.GetEmbedding())
	default:
		spec.scorer, spec.model, err = compileModel(s.GetModel(), parts.Models)
	}
	if err != nil {
		return nil, err
	}
	if spec.filter, err = compileFilter(s.GetFilter(), parts); err != nil {
		return nil, err
	}
	if spec.filter != nil {
		spec.inputs, spec.payload = true, spec.payload || spec.filter.Uses("payload")
	}
	spec.diversify, err = compileDiversify(s.GetDiversify())
	return spec, err
}

// CheckNamespace finds a fault of a namespace's rank policy that Compile would find wherever there
// is every model. It is a policy.Rule.
func CheckNamespace(ns *pushmeshv1.Namespace) error {
	r := ns.GetPolicy().GetRank()
	if r == nil {
		return nil
	}
	if err := check(r); err != nil {
		return fmt.Errorf("rank: %s", withoutCode(err))
	}
	return nil
}

func check(s Scoring) error {
	if err := oneScorer(s); err != nil {
		return err
	}
	if s.GetModel() == nil {
		_, err := Compile(s, Parts{})
		return err
	}
	_, filtered := compileFilter(s.GetFilter(), Parts{})
	_, diversified := compileDiversify(s.GetDiversify())
	return errors.Join(checkModel(s.GetModel()), filtered, diversified)
}

func oneScorer(s Scoring) error {
	given := 0
	for _, set := range []bool{s.GetWeighted() != nil, s.GetExpression() != nil, s.GetEmbedding() != nil, s.GetModel() != nil} {
		if set {
			given++
		}
	}
	switch given {
	case 0:
		return invalid("no scorer: set one of weighted, expression, embedding and model")
	case 1:
		return nil
	}
	return invalid("%d scorers: set one of weighted, expression, embedding and model alone", given)
}

// Model is the version of the model that scores; 0: none does.
func (s *Spec) Model() uint64 { return s.model }

// costs of one candidate: once, and for each profile.
func (s *Spec) costs() (once, each int) {
	once, each = s.scorer.cost()
	if s.filter != nil {
		if s.filter.OfProfile() {
			each += s.filter.steps
		} else {
			once += s.filter.steps
		}
	}
	return once, each + 2
}

// Cost estimates the work of a ranking, in steps of 25 ns: what each candidate carries is checked,
// and each is scored for each profile.
func (s *Spec) Cost(candidates []Candidate, profiles int) int {
	once, each := s.costs()
	cost := (once + each*profiles) * len(candidates)
	for i := range candidates {
		cost += s.weight(&candidates[i])
	}
	return cost
}

// ExplainCost estimates the work of explaining what made the scores of so many places.
func (s *Spec) ExplainCost(places int) int { return s.scorer.explainCost() * places }

// steps that a time is.
func steps(d time.Duration) int { return int(d/Unit) + 1 }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func unsupported(what string) error { return code.New(wirev1.Code_CODE_UNSUPPORTED, what) }

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}

// withoutCode is what is wrong without the code, which whoever refuses the policy gives.
func withoutCode(err error) string {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return code.From(err).Message
	}
	var all []string
	for _, e := range several.Unwrap() {
		all = append(all, code.From(e).Message)
	}
	return strings.Join(all, "; ")
}
