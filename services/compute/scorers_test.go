package compute

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Every scorer, filters and explanations are served; what is too much is refused before it is
// queued.
func TestScorers(t *testing.T) {
	c, conn := startCompute(t, Settings{})
	client := meshv1.NewComputeServiceClient(conn)
	ids := func(r *pushmeshv1.RankResponse) (out string) {
		for _, one := range r.GetRanked() {
			out += one.GetId()
		}
		return out
	}
	some := func() *pushmeshv1.RankRequest {
		return &pushmeshv1.RankRequest{
			Profile: map[string]float64{"f": 2}, ProfileVector: []float32{1, 0},
			Candidates: []*pushmeshv1.Candidate{
				{Id: "a", Features: map[string]float64{"f": 1}, Vector: []float32{5, 5}},
				{Id: "b", Features: map[string]float64{"f": 3}, Vector: []float32{2, 0}, Priority: 9},
				{Id: "c", Features: map[string]float64{"f": 2}},
			},
		}
	}
	for want, set := range map[string]func(r *pushmeshv1.RankRequest){
		"bca": func(r *pushmeshv1.RankRequest) {
			r.Expression = &pushmeshv1.ExpressionScorer{Expression: "features.f * profile.f"}
		},
		"ca": func(r *pushmeshv1.RankRequest) {
			r.Expression, r.Filter = &pushmeshv1.ExpressionScorer{Expression: "features.f"}, "features.f <= profile.f"
		},
		"b": func(r *pushmeshv1.RankRequest) {
			r.Weighted, r.Filter = &pushmeshv1.WeightedScorer{Bias: 1}, "priority > 1"
		},
		"abc": func(r *pushmeshv1.RankRequest) { r.Embedding = &pushmeshv1.EmbeddingScorer{} },
		"bac": func(r *pushmeshv1.RankRequest) {
			r.Embedding = &pushmeshv1.EmbeddingScorer{Metric: pushmeshv1.EmbeddingScorer_METRIC_COSINE}
		},
	} {
		r := some()
		set(r)
		resp, err := client.RankJob(t.Context(), &meshv1.RankJobRequest{Rank: r})
		if err != nil || ids(resp.GetRank()) != want || int(resp.GetRank().GetFiltered()) != 3-len(want) || resp.GetRank().GetModelVersion() != 0 {
			t.Errorf("%v, %v; want %s", resp, err, want)
		}
	}
	r := some()
	r.Weighted, r.Filter, r.Explain = &pushmeshv1.WeightedScorer{Bias: 1, Weights: map[string]float64{"f": 2}}, "features.f > 2.0", true
	resp, err := client.RankJob(t.Context(), &meshv1.RankJobRequest{Rank: r})
	if parts := resp.GetRank().GetRanked(); err != nil || len(parts) != 1 || len(parts[0].GetContributions()) != 2 || parts[0].GetContributions()[0].GetValue() != 6 {
		t.Errorf("explained: %v, %v", resp, err)
	}
	for want, r := range map[string]*pushmeshv1.RankRequest{
		"UNSUPPORTED":   {Model: &pushmeshv1.ModelScorer{Name: "m"}},
		"too much work": {Expression: &pushmeshv1.ExpressionScorer{Expression: "features.all(a, features.all(b, a != b)) ? 1 : 0"}, Candidates: make([]*pushmeshv1.Candidate, 100_000)},
	} {
		for i := range r.GetCandidates() {
			r.Candidates[i] = &pushmeshv1.Candidate{}
		}
		if _, err := client.RankJob(t.Context(), &meshv1.RankJobRequest{Rank: r}); err == nil || !strings.Contains(code.From(err).Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if body := get(t, "http://"+c.HTTPAddr()+"/metrics"); !strings.Contains(body, "pushmesh_compute_expressions 6") {
		t.Error("the expressions that are kept are not counted")
	}
}

// A job for profiles says which places its filter left out for each, and expressions see payloads.
func TestFilteredPlaces(t *testing.T) {
	_, conn := startCompute(t, Settings{})
	client := meshv1.NewComputeServiceClient(conn)
	resp, err := client.RankJob(t.Context(), &meshv1.RankJobRequest{
		Rank: &pushmeshv1.RankRequest{
			Expression: &pushmeshv1.ExpressionScorer{Expression: "payload.n"}, Filter: "payload.n >= profile.least",
			Candidates: []*pushmeshv1.Candidate{{Payload: []byte(`{"n":1}`)}, {Payload: []byte("none")}, {Payload: []byte(`{"n":3}`)}},
		},
		Profiles: []*meshv1.RankProfile{{}, {Features: map[string]float64{"least": 2}}, {Features: map[string]float64{"least": 2}, Candidates: []uint32{0, 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"[2 0] [1]", "[2] [0 1]", "[2] [0]"} {
		if p := resp.GetProfiles()[i]; fmt.Sprint(p.GetPlaces(), p.GetFiltered()) != want {
			t.Errorf("profile %d: %v %v, want %s", i, p.GetPlaces(), p.GetFiltered(), want)
		}
	}
}
