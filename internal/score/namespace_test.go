package score

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestScorersOfNamespaces(t *testing.T) {
	t.Parallel()
	weighted := &pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": 1}}
	for name, c := range map[string]struct {
		rank  *pushmeshv1.RankPolicy
		fault string
	}{
		"no rank policy": {nil, ""},
		"weighted":       {&pushmeshv1.RankPolicy{Weighted: weighted}, ""},
		"expression":     {&pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a * profile.a"}, Filter: "priority > 2"}, ""},
		"model":          {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks"}, Rest: pushmeshv1.RankPolicy_REST_SKIP}, ""},
		"embedding":      {&pushmeshv1.RankPolicy{Embedding: &pushmeshv1.EmbeddingScorer{}, Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 2}}, ""},

		"none":              {&pushmeshv1.RankPolicy{}, "no scorer"},
		"two":               {&pushmeshv1.RankPolicy{Weighted: weighted, Model: &pushmeshv1.ModelScorer{Name: "clicks"}}, "2 scorers"},
		"not an expression": {&pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a *"}}, "line 1"},
		"not a filter":      {&pushmeshv1.RankPolicy{Weighted: weighted, Filter: "priority"}, "a filter must be a bool"},
		"a model's filter":  {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks"}, Filter: "priority"}, "a filter must be a bool"},
		"a model's name":    {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "Clicks!"}}, "Clicks!"},
		"diversify":         {&pushmeshv1.RankPolicy{Weighted: weighted, Diversify: &pushmeshv1.Diversify{Key: "x", AtMost: 1}}, "diversify"},
		"model's diversify": {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks"}, Diversify: &pushmeshv1.Diversify{Key: "x", AtMost: 1}}, "diversify"},
	} {
		err := CheckNamespace(&pushmeshv1.Namespace{Prefix: "a", Policy: &pushmeshv1.Policy{Rank: c.rank}})
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}
