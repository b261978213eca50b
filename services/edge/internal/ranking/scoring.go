package ranking

import (
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const (
	// expressions is how many programs are kept: usual ones take a few KiB, the largest 200.
	expressions = 256
	// unusedFor is how long a policy's scoring is kept that nobody asks for.
	unusedFor = time.Minute
)

// scoring is a policy's, made ready.
type scoring struct {
	spec  *score.Spec // nil: a model scores, and those are with compute nodes alone
	needs score.Needs
	used  time.Time
}

// scorings are those of policies in use. A policy that changed is another one.
type scorings struct {
	parts score.Parts

	mu sync.Mutex
	of map[*pushmeshv1.RankPolicy]*scoring
}

func newScorings() *scorings {
	return &scorings{parts: score.Parts{Expressions: expr.NewCache(expressions, expr.Limits{})}, of: map[*pushmeshv1.RankPolicy]*scoring{}}
}

// get the scoring of a policy. The first time it takes milliseconds where there are expressions.
func (s *scorings) get(p *policy.Policy, now time.Time) (*scoring, error) {
	s.mu.Lock()
	known := s.of[p.Rank]
	if known != nil {
		known.used = now
	}
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	made, err := s.make(p.Rank)
	if err != nil {
		return nil, err
	}
	made.used = now
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, one := range s.of {
		if now.Sub(one.used) > unusedFor {
			delete(s.of, old)
		}
	}
	s.of[p.Rank] = made
	return made, nil
}

func (s *scorings) make(p *pushmeshv1.RankPolicy) (*scoring, error) {
	needs := score.NeedsOf(p)
	if p.GetModel() != nil {
		return &scoring{needs: needs}, nil
	}
	spec, err := score.Compile(p, s.parts)
	return &scoring{spec: spec, needs: needs}, err
}

// request is what a compute node is told of a policy.
func request(p *policy.Policy) *pushmeshv1.RankRequest {
	return &pushmeshv1.RankRequest{
		Namespace: p.Prefix, Filter: p.Rank.GetFilter(), Diversify: p.Rank.GetDiversify(),
		Weighted: p.Rank.GetWeighted(), Expression: p.Rank.GetExpression(), Embedding: p.Rank.GetEmbedding(), Model: p.Rank.GetModel(),
	}
}
