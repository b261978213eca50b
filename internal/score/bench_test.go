package score

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// BenchmarkScorers ranks 10,000 candidates with 20 features in slices of 1 ms: what a candidate
// takes, what its cost says that it takes, and the longest slice of the calmest round.
func BenchmarkScorers(b *testing.B) {
	const n, dim = 10_000, 128
	models := library{"small": chain(b, 50, 8), "large": chain(b, 500, 20)}
	var candidates []*pushmeshv1.Candidate
	for i := range n {
		c := &pushmeshv1.Candidate{Id: fmt.Sprint(i), Features: map[string]float64{}, Vector: make([]float32, dim), Headers: map[string]string{"lang": "en"}}
		for k := range 20 {
			c.Features[fmt.Sprint("c", k)] = float64((i*31+k*17)%100) / 100
		}
		for k := range c.Vector {
			c.Vector[k] = float32((i*13+k*7)%100) / 100
		}
		candidates = append(candidates, c)
	}
	rows := Candidates(candidates)
	expression := func(text string) *pushmeshv1.RankRequest {
		return &pushmeshv1.RankRequest{Expression: &pushmeshv1.ExpressionScorer{Expression: text}}
	}
	for _, c := range []struct {
		name    string
		request *pushmeshv1.RankRequest
	}{
		{"weighted", &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"c1": 1, "c2": 2, "c3": 3}}}},
		{"weighted-filter", &pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{Weights: map[string]float64{"c1": 1}}, Filter: `features.c1 > 0.5 && headers.lang == "en"`}},
		{"expression", expression("features.c1 * profile.c2 + features.c2 * 2.0 - age / 3600.0")},
		{"interpreted", expression(`double(size(headers.lang)) + features.c1`)},
		{"comprehension", expression(`features.exists(f, f == "none") ? 1.0 : 2.0`)},
		{"dot", &pushmeshv1.RankRequest{Embedding: &pushmeshv1.EmbeddingScorer{}}},
		{"cosine", &pushmeshv1.RankRequest{Embedding: &pushmeshv1.EmbeddingScorer{Metric: pushmeshv1.EmbeddingScorer_METRIC_COSINE}}},
		{"small-model", &pushmeshv1.RankRequest{Model: &pushmeshv1.ModelScorer{Name: "small"}}},
		{"large-model", &pushmeshv1.RankRequest{Model: &pushmeshv1.ModelScorer{Name: "large"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			spec, err := Compile(c.request, Parts{Models: models})
			if err != nil {
				b.Fatal(err)
			}
			profiles := []Profile{{Keep: 100, Vector: candidates[7].GetVector(), Features: map[string]float64{"c2": 0.5}}}
			// the longest slice of the calmest round: others had the collector, or another process,
			// in one of theirs
			calm := time.Hour
			for b.Loop() {
				var longest time.Duration
				j, err := spec.Job(rows, profiles, now)
				for done := false; err == nil && !done; {
					began := time.Now()
					done, err = j.Step(time.Millisecond)
					longest = max(longest, time.Since(began))
				}
				if err != nil {
					b.Fatal(err)
				}
				calm = min(calm, longest)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/candidate")
			b.ReportMetric(float64(time.Duration(spec.Cost(rows, 1))*Unit)/n, "estimated-ns/candidate")
			b.ReportMetric(float64(calm.Microseconds()), "longest-slice-us")
		})
	}
}
