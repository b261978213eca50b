package score

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/vector"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Embeddings are scored as vector.Dot and vector.Norm do alone, bit by bit, whatever block a
// candidate is in.
func TestEmbeddings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.IntRange(1, 70).Draw(t, "dimensions")
		vec := rapid.Custom(func(t *rapid.T) []float32 {
			return rapid.SliceOfN(rapid.Float32Range(-1e3, 1e3), dim, dim).Draw(t, "vector")
		})
		r := request(t)
		metric := rapid.SampledFrom([]pushmeshv1.EmbeddingScorer_Metric{pushmeshv1.EmbeddingScorer_METRIC_DOT, pushmeshv1.EmbeddingScorer_METRIC_COSINE}).Draw(t, "metric")
		r.Weighted, r.Embedding = nil, &pushmeshv1.EmbeddingScorer{Metric: metric}
		for _, c := range r.GetCandidates() {
			if rapid.IntRange(0, 3).Draw(t, "has a vector") > 0 {
				c.Vector = vec.Draw(t, "candidate")
			}
		}
		if rapid.Bool().Draw(t, "filtered") {
			r.Filter = "features.a > profile.a"
		}
		profiles := []Profile{{Vector: vec.Draw(t, "first"), Keep: int(r.GetTopK())}, {}, {Vector: vec.Draw(t, "third"), Candidates: everyOther(r), Features: r.GetProfile()}}
		spec, err := Compile(r, Parts{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := spec.Job(Candidates(r.GetCandidates()), profiles, now)
		finish(t, j, err)
		for i := range profiles {
			p := &profiles[i]
			checkPlaces(t, j, i, r.GetCandidates(), p, func(c *pushmeshv1.Candidate) (float64, bool) {
				passes := r.GetFilter() == "" || c.GetFeatures()["a"] > p.Features["a"]
				switch {
				case len(c.GetVector()) == 0 || len(p.Vector) == 0:
					return 0, passes
				case metric == pushmeshv1.EmbeddingScorer_METRIC_COSINE:
					return float64(cosine(vector.Dot(c.GetVector(), p.Vector), vector.Norm(c.GetVector()), vector.Norm(p.Vector))), passes
				}
				return float64(vector.Dot(c.GetVector(), p.Vector)), passes
			})
		}
	})
}

func TestRefusesVectors(t *testing.T) {
	huge := float32(math.MaxFloat32)
	for name, r := range map[string]*pushmeshv1.RankRequest{
		"none of the profile":    {Candidates: []*pushmeshv1.Candidate{{Vector: []float32{1}}}},
		"shorter":                {ProfileVector: []float32{1, 2}, Candidates: []*pushmeshv1.Candidate{{Vector: []float32{1, 2}}, {Vector: []float32{1}}}},
		"longer":                 {ProfileVector: []float32{1}, Candidates: []*pushmeshv1.Candidate{{Vector: []float32{1, 2}}}},
		"NaN":                    {ProfileVector: []float32{1}, Candidates: []*pushmeshv1.Candidate{{Vector: []float32{float32(math.NaN())}}}},
		"infinite":               {ProfileVector: []float32{1}, Candidates: []*pushmeshv1.Candidate{{Vector: []float32{float32(math.Inf(-1))}}}},
		"NaN of the profile":     {ProfileVector: []float32{float32(math.NaN())}},
		"too many dimensions":    {ProfileVector: make([]float32, MaxDimensions+1)},
		"too many of a one":      {ProfileVector: make([]float32, MaxDimensions), Candidates: []*pushmeshv1.Candidate{{Vector: make([]float32, MaxDimensions+1)}}},
		"a sum beyond a float32": {ProfileVector: []float32{huge, huge}, Candidates: []*pushmeshv1.Candidate{{Vector: []float32{huge, huge}}}},
		"unknown metric":         {Embedding: &pushmeshv1.EmbeddingScorer{Metric: 7}, ProfileVector: []float32{1}},
	} {
		if r.GetEmbedding() == nil {
			r.Embedding = &pushmeshv1.EmbeddingScorer{}
		}
		j, err := begin(r)
		for done := false; err == nil && !done; {
			done, err = j.Step(time.Second)
		}
		if code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", name, err)
		}
	}
	spec, err := Compile(&pushmeshv1.RankRequest{Embedding: &pushmeshv1.EmbeddingScorer{}}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.Job(nil, []Profile{{Vector: []float32{1}}, {Vector: []float32{1, 2}}}, now); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("profiles of different dimensions: %v", err)
	}
}

func TestCosine(t *testing.T) {
	for _, c := range []struct {
		a, b []float32
		want float32
	}{
		{[]float32{3, 4}, []float32{3, 4}, 1},
		{[]float32{1, 0}, []float32{0, 2}, 0},
		{[]float32{1, 1}, []float32{-2, -2}, -1},
		{[]float32{0, 0}, []float32{1, 1}, 0},
		{nil, nil, 0},
		{[]float32{1e-30}, []float32{1e-30}, 0},
	} {
		if got := cosine(vector.Dot(c.a, c.b), vector.Norm(c.a), vector.Norm(c.b)); math.Abs(float64(got-c.want)) > 1e-6 {
			t.Errorf("cosine of %v and %v: %v", c.a, c.b, got)
		}
	}
}
