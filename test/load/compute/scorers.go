package compute

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	candidate "github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	scoredCandidates = 10_000
	expressionGoal   = 1e6 // candidates a second of a core
	wantedBest       = 100
)

func hours(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Hour) }

// ranker does one ranking of all candidates.
type ranker struct {
	name string
	rank func() error
	got  []float64
}

// scorers ranks candidates in this process as a compute node does, in slices, with each kind of
// scorer in turn, and evaluates the same expression with cel-go.
func (b *bench) scorers(ctx context.Context) (err error) {
	defer try.Catch(&err)
	now := time.Now()
	all := candidates(scoredCandidates, now)
	text := &pushmeshv1.ExpressionScorer{Expression: usualExpression}
	requests := []struct {
		name    string
		request *pushmeshv1.RankRequest
	}{
		{"weighted", &pushmeshv1.RankRequest{Weighted: weightedScorer()}},
		{"expression", &pushmeshv1.RankRequest{Expression: text}},
		{"pipeline", &pushmeshv1.RankRequest{Expression: text, Filter: usualFilter, Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 3}}},
	}
	// as a node has them
	packed := try.Get(candidate.Pack(score.Candidates(all), &score.Needs{Features: true, Headers: true, PublishedAt: true, Topic: true, ID: true}))
	rows := try.Get(candidate.Unpack(packed))
	var rankers []*ranker
	for _, r := range requests {
		spec, err := score.Compile(r.request, score.Parts{})
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		rankers = append(rankers, &ranker{name: r.name, rank: func() error { return rank(spec, rows, now) }})
	}
	program := try.Get(expr.Compile(usualExpression, expr.Score, expr.Limits{}))
	ours := inputs(all, now)
	rankers = append(rankers, &ranker{name: "evaluation", rank: func() error { return evaluate(ctx, program, ours) }})
	cel := try.Get(celGo(usualExpression, all, now))
	try.Do(sameScores(ctx, program, ours, cel))
	rankers = append(rankers, &ranker{name: "cel-go", rank: cel.evaluate})
	for range b.Rounds {
		for _, r := range rankers {
			v, err := perSecond(b.Span, scoredCandidates, r.rank)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			r.got = append(r.got, v/1e6)
		}
	}
	b.scorerRows(rankers)
	return nil
}

func (b *bench) scorerRows(rankers []*ranker) {
	by := map[string][]float64{}
	for _, r := range rankers {
		by[r.name] = r.got
	}
	what := fmt.Sprintf("of %d candidates with %d features, best %d, ", scoredCandidates, len(features), wantedBest)
	row := func(name, of string) {
		b.Add(table.Figure(of, table.Median(by[name]), "M/s/core", "rounds "+table.Spread(by[name])))
	}
	cel := fmt.Sprintf("rounds %s; cel-go alone %.3g (%s), %.3g × it", table.Spread(by["evaluation"]), table.Median(by["cel-go"]), table.Spread(by["cel-go"]),
		table.Median(table.Ratios(by["evaluation"], by["cel-go"])))
	b.Add(
		table.AtLeast("expression over features, profile and age: evaluations", table.Median(by["evaluation"]), "M/s/core", expressionGoal/1e6, cel),
		table.AtLeast("a ranking "+what+"expression scorer", table.Median(by["expression"]), "M/s/core", expressionGoal/1e6,
			"checks, input, order of the best and slices of 1 ms are in it; rounds "+table.Spread(by["expression"])),
	)
	row("weighted", "a ranking "+what+"weighted scorer")
	row("pipeline", "a ranking "+what+"filter, expression, diversify")
}

// rank does a whole ranking in slices, as a worker of the pool does.
func rank(spec *score.Spec, all []score.Candidate, now time.Time) error {
	j, err := spec.Job(all, []score.Profile{{Features: profile(7), Keep: wantedBest}}, now)
	for done := false; err == nil && !done; {
		done, err = j.Step(cpupool.Slice)
	}
	if err == nil && len(j.Places(0)) != wantedBest {
		err = fmt.Errorf("%d places", len(j.Places(0)))
	}
	return err
}

func inputs(all []*pushmeshv1.Candidate, now time.Time) []expr.Input {
	ins := make([]expr.Input, len(all))
	for i, c := range all {
		in := &ins[i]
		in.Features.Map, in.Headers.Map, in.Profile.Map = c.GetFeatures(), c.GetHeaders(), profile(7)
		in.Age = now.Sub(c.GetPublishedAt().AsTime()).Seconds()
	}
	return ins
}

func evaluate(ctx context.Context, p *expr.Program, ins []expr.Input) (err error) {
	defer try.Catch(&err)
	for i := range ins {
		r := try.Get(p.Eval(ctx, &ins[i]))
		if r.Undefined {
			return fmt.Errorf("candidate %d has no score", i)
		}
	}
	return nil
}
