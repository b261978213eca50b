package score

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestNeeds(t *testing.T) {
	weights := map[string]float64{"a": 1}
	for name, one := range map[string]struct {
		of   *pushmeshv1.RankPolicy
		want Needs
	}{
		"nothing":           {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{PriorityWeight: 1}}, Needs{}},
		"weights":           {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{Weights: weights}}, Needs{Features: true, FeatureNames: []string{"a"}}},
		"affinities":        {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{Affinities: weights}}, Needs{Features: true, FeatureNames: []string{"a"}, Profile: true}},
		"decay":             {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{HalfLife: durationpb.New(time.Hour)}}, Needs{PublishedAt: true}},
		"expression":        {&pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "payload.x + age"}}, Needs{Payload: true, PublishedAt: true}},
		"of a profile":      {&pushmeshv1.RankPolicy{Expression: &pushmeshv1.ExpressionScorer{Expression: "size(id) > 0 ? profile.a : 0.0"}}, Needs{ID: true, Profile: true}},
		"a feature and any": {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{Weights: weights}, Filter: "features['b'] > 0.0"}, Needs{Features: true}},
		"embedding":         {&pushmeshv1.RankPolicy{Embedding: &pushmeshv1.EmbeddingScorer{}}, Needs{Vector: true}},
		"model":             {&pushmeshv1.RankPolicy{Model: &pushmeshv1.ModelScorer{Name: "m"}}, Needs{Features: true, Profile: true}},
		"filter":            {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{}, Filter: `headers.k == "x" && topic != "t"`}, Needs{Headers: true, Topic: true}},
		"diversify":         {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{}, Diversify: &pushmeshv1.Diversify{Key: "header:k", AtMost: 1}}, Needs{Headers: true}},
		"of a feature":      {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{}, Diversify: &pushmeshv1.Diversify{Key: "feature:k", AtMost: 1}}, Needs{Features: true, FeatureNames: []string{"k"}}},
		"of the topics":     {&pushmeshv1.RankPolicy{Weighted: &pushmeshv1.WeightedScorer{}, Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 1}}, Needs{Topic: true}},
	} {
		if got := NeedsOf(one.of); !reflect.DeepEqual(got, one.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Without what a scoring does not need, it ranks the same.
func TestWhatIsNotNeededDoesNotMatter(t *testing.T) {
	texts := keys(formulas)
	rapid.Check(t, func(t *rapid.T) {
		r := request(t)
		for _, c := range r.GetCandidates() {
			c.Topic, c.Headers, c.Payload = "t", map[string]string{"k": "x"}, []byte(`{"n":1}`)
		}
		if rapid.Bool().Draw(t, "expression") {
			r.Weighted, r.Expression = nil, &pushmeshv1.ExpressionScorer{Expression: rapid.SampledFrom(texts).Draw(t, "text")}
		}
		n := NeedsOf(r)
		want := rank(t, r)
		if !n.Profile {
			r.Profile = nil
		}
		for _, c := range r.GetCandidates() {
			n.strip(c)
		}
		got := rank(t, r)
		for i := range want {
			if got[i].GetIndex() != want[i].GetIndex() || got[i].GetScore() != want[i].GetScore() {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// strip a candidate of what is not needed.
func (n *Needs) strip(c *pushmeshv1.Candidate) {
	if !n.ID {
		c.Id = ""
	}
	if !n.Topic {
		c.Topic = ""
	}
	maps.DeleteFunc(c.GetFeatures(), func(name string, _ float64) bool { return !n.Feature(name) })
	if !n.Headers {
		c.Headers = nil
	}
	if !n.Payload {
		c.Payload = nil
	}
	if !n.PublishedAt {
		c.PublishedAt = nil
	}
}
