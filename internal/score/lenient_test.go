package score

import (
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// One candidate that can't be scored ends a ranking, or, where the ranking is lenient, is among
// nobody's best; one that a filter can't judge does not pass.
func TestALenientRankingGoesOn(t *testing.T) {
	feature := func(v float64) *pushmeshv1.Candidate {
		return &pushmeshv1.Candidate{Features: map[string]float64{"x": v}}
	}
	long := feature(3)
	long.Headers = map[string]string{"h": string(slices.Repeat([]byte("ab"), 200_000))}
	for _, c := range []struct {
		what     string
		scoring  *pushmeshv1.RankRequest
		wrong    *pushmeshv1.Candidate
		filtered int
	}{
		{"infinite by weights", &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"x": 10}}}, feature(1.7e308), 0},
		{"infinite by an expression", &pushmeshv1.RankRequest{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.x * 10.0"}}, feature(1.7e308), 0},
		{"too dear to score", &pushmeshv1.RankRequest{Expression: &pushmeshv1.ExpressionScorer{Expression: dear + " ? 1.0 : features.x"}}, long, 0},
		{"too dear to filter", &pushmeshv1.RankRequest{Filter: "!(" + dear + ")", Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"x": 1}}}, long, 1},
	} {
		candidates := []*pushmeshv1.Candidate{feature(1), c.wrong, feature(2)}
		run := func(lenient bool) (*Job, error) {
			spec, err := Compile(c.scoring, Parts{})
			if err != nil {
				t.Fatal(c.what, err)
			}
			j, err := spec.Job(Candidates(candidates), []Profile{{}}, time.Unix(0, 0))
			if err != nil {
				t.Fatal(c.what, err)
			}
			if lenient {
				j.Lenient()
			}
			for {
				if done, err := j.Step(time.Millisecond); done || err != nil {
					return j, err
				}
			}
		}
		if _, err := run(false); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", c.what, err)
		}
		j, err := run(true)
		if err != nil {
			t.Errorf("%s, lenient: %v", c.what, err)
			continue
		}
		if got := j.Places(0); len(got) != 2 || got[0].Index != 2 || got[1].Index != 0 || len(j.Filtered(0)) != c.filtered {
			t.Errorf("%s, lenient: %v, %v filtered", c.what, got, j.Filtered(0))
		}
	}
}

// dear costs more than an evaluation may where the header h is long.
const dear = `headers["h"].matches("(a|a)*(b|b)*c") || headers["h"].matches("(b|b)*(a|a)*d") || headers["h"].contains("zz")`
