package policy

import (
	"errors"
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

		"long window":        {&pushmeshv1.RankPolicy{Weighted: weighted, Window: durationpb.New(MaxRankWindow + 1)}, "rank: window"},
		"negative deadline":  {&pushmeshv1.RankPolicy{Weighted: weighted, Deadline: durationpb.New(-time.Second)}, "rank: deadline"},
		"too many":           {&pushmeshv1.RankPolicy{Weighted: weighted, MaxCandidates: MaxRankCandidates + 1}, "rank: max_candidates"},
		"unknown rest":       {&pushmeshv1.RankPolicy{Weighted: weighted, Rest: 9}, "rest 9"},
		"two faults, first":  {&pushmeshv1.RankPolicy{Weighted: weighted, MaxCandidates: MaxRankCandidates + 1, Rest: 9}, "rest 9"},
		"two faults, second": {&pushmeshv1.RankPolicy{Weighted: weighted, MaxCandidates: MaxRankCandidates + 1, Rest: 9}, "max_candidates"},
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

// What a process knows beyond this package it checks with rules: a namespace that breaks one is
// refused as one that is not understood.
func TestRulesOfAProcess(t *testing.T) {
	t.Parallel()
	rule := func(ns *pushmeshv1.Namespace) error {
		if ns.GetPolicy().GetRank().GetFilter() == "wrong" {
			return errors.New("not an expression")
		}
		return nil
	}
	wrong := ns("ranked", &pushmeshv1.Policy{Rank: &pushmeshv1.RankPolicy{Filter: "wrong"}})
	if err := Check(wrong); err != nil {
		t.Errorf("without rules: %v", err)
	}
	if err := Check(wrong, rule); err == nil || !strings.Contains(err.Error(), "not an expression") {
		t.Errorf("with the rule: %v", err)
	}
	table := NewTable([]*pushmeshv1.Namespace{wrong, ns("plain", &pushmeshv1.Policy{})}, rule)
	if table.Refuses("ranked/a") == nil || table.Refuses("plain/a") != nil {
		t.Errorf("refused: %v", table.Refused())
	}
}
