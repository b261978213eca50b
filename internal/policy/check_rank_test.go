package policy

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestRankPolicies(t *testing.T) {
	weighted := &pushmeshv1.WeightedScorer{Weights: map[string]float64{"a": 1}}
	for name, c := range map[string]struct {
		rank  *pushmeshv1.RankPolicy
		fault string
	}{
		"weighted":   {&pushmeshv1.RankPolicy{Weighted: weighted, Window: durationpb.New(MaxRankWindow), Deadline: durationpb.New(MaxRankDeadline), MaxCandidates: MaxRankCandidates}, ""},
		"expression": {&pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a * profile.a"}, Filter: "priority > 2"}, ""},
		"model":      {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks"}, Rest: pushmeshv1.RankPolicy_REST_SKIP}, ""},
		"embedding":  {&pushmeshv1.RankPolicy{Embedding: &pushmeshv1.EmbeddingScorer{}, Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 2}}, ""},

		"none":               {&pushmeshv1.RankPolicy{}, "no scorer"},
		"two":                {&pushmeshv1.RankPolicy{Weighted: weighted, Model: &pushmeshv1.ModelScorer{Name: "clicks"}}, "2 scorers"},
		"not an expression":  {&pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a *"}}, "line 1"},
		"not a filter":       {&pushmeshv1.RankPolicy{Weighted: weighted, Filter: "priority"}, "a filter is a bool"},
		"a model's filter":   {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks"}, Filter: "priority"}, "a filter is a bool"},
		"a model's name":     {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "Clicks!"}}, "Clicks!"},
		"diversify":          {&pushmeshv1.RankPolicy{Weighted: weighted, Diversify: &pushmeshv1.Diversify{Key: "x", AtMost: 1}}, "diversify"},
		"model's diversify":  {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "clicks"}, Diversify: &pushmeshv1.Diversify{Key: "x", AtMost: 1}}, "diversify"},
		"long window":        {&pushmeshv1.RankPolicy{Weighted: weighted, Window: durationpb.New(MaxRankWindow + 1)}, "rank: window"},
		"negative deadline":  {&pushmeshv1.RankPolicy{Weighted: weighted, Deadline: durationpb.New(-time.Second)}, "rank: deadline"},
		"too many":           {&pushmeshv1.RankPolicy{Weighted: weighted, MaxCandidates: MaxRankCandidates + 1}, "rank: max_candidates"},
		"unknown rest":       {&pushmeshv1.RankPolicy{Weighted: weighted, Rest: 9}, "rest 9"},
		"two faults, first":  {&pushmeshv1.RankPolicy{MaxCandidates: MaxRankCandidates + 1}, "no scorer"},
		"two faults, second": {&pushmeshv1.RankPolicy{MaxCandidates: MaxRankCandidates + 1}, "max_candidates"},
	} {
		err := Check(ns("a", &pushmeshv1.Policy{Rank: c.rank}))
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
	rank := &pushmeshv1.RankPolicy{Weighted: weighted}
	table := NewTable([]*pushmeshv1.Namespace{ns("a/b", &pushmeshv1.Policy{Rank: rank})})
	if p := table.Of("a/b"); p == nil || p.Rank != rank || table.Of("a/b/c") != nil || table.Of("a") != nil || table.For("a/b/c").Rank != rank {
		t.Errorf("%v", p)
	}
}
