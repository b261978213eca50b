package score

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// chain is a LightGBM model of so many equal trees, each a chain of splits of as many columns.
func chain(t testing.TB, count, depth int) *trees.Model {
	t.Helper()
	list := func(n int, one func(i int) any) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint(one(i))
		}
		return strings.Join(all, " ")
	}
	same := func(v any) func(int) any { return func(int) any { return v } }
	var b strings.Builder
	fmt.Fprintf(&b, "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=%d\nobjective=regression\nfeature_names=%s\nfeature_infos=%s\n\n",
		depth-1, list(depth, func(i int) any { return fmt.Sprint("c", i) }), list(depth, same("[0:1]")))
	for i := range count {
		fmt.Fprintf(&b, "Tree=%d\nnum_leaves=%d\nnum_cat=0\nsplit_feature=%s\nthreshold=%s\ndecision_type=%s\nleft_child=%s\nright_child=%s\nleaf_value=%s\nleaf_count=%s\ninternal_count=%s\nshrinkage=1\n\n\n",
			i, depth+1, list(depth, func(i int) any { return i }), list(depth, same(0.5)), list(depth, same(2)),
			list(depth, func(i int) any { return -1 - i }),
			list(depth, func(i int) any {
				if i == depth-1 {
					return -1 - depth
				}
				return i + 1
			}),
			list(depth+1, func(i int) any { return i }), list(depth+1, same(1)), list(depth, func(i int) any { return depth + 1 - i }))
	}
	b.WriteString("end of trees\n")
	m, err := trees.Parse([]byte(b.String()), trees.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What a model's trees make too long is not explained, and the rest is.
func TestExplanationsOfLargeModelsAreRefused(t *testing.T) {
	r := &pushmeshv1.RankRequest{Model: &pushmeshv1.ModelScorer{Name: "m"}, Explain: true, Candidates: []*pushmeshv1.Candidate{{Features: map[string]float64{"c0": 1}}}}
	for depth, want := range map[int]wirev1.Code{8: wirev1.Code_CODE_OK, 300: wirev1.Code_CODE_INVALID_ARGUMENT} {
		spec, err := Compile(r, Parts{Models: library{"m": chain(t, 1, depth)}})
		if err != nil {
			t.Fatal(err)
		}
		j, err := spec.Job(Candidates(r.GetCandidates()), []Profile{{Explain: true}}, now)
		if code.Of(err) != want {
			t.Errorf("depth %d: %v, want %v", depth, err, want)
		}
		if err == nil {
			finish(t, j, err)
		}
	}
}

// The costlier a candidate, the fewer are scored between two looks at the clock, down to one.
func TestBlocksShrink(t *testing.T) {
	wide, long := map[string]float64{}, make([]float32, MaxDimensions)
	for i := range 20_000 {
		wide[fmt.Sprint(i)] = 1
	}
	models := library{"small": chain(t, 10, 8), "large": chain(t, 500, 100)}
	heavy := `features.all(a, features.all(b, a != b + "x"))`
	for name, c := range map[string]struct {
		request   *pushmeshv1.RankRequest
		candidate *pushmeshv1.Candidate
		low, high int
	}{
		"weighted":         {&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{}}, &pushmeshv1.Candidate{}, chunk, chunk},
		"many features":    {&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{}}, &pushmeshv1.Candidate{Features: wide}, 1, 1},
		"long vectors":     {&pushmeshv1.RankRequest{Embedding: &pushmeshv1.EmbeddingScorer{}, ProfileVector: long}, &pushmeshv1.Candidate{Vector: long}, chunk, chunk},
		"a small model":    {&pushmeshv1.RankRequest{Model: &pushmeshv1.ModelScorer{Name: "small"}}, &pushmeshv1.Candidate{}, chunk, chunk},
		"a large model":    {&pushmeshv1.RankRequest{Model: &pushmeshv1.ModelScorer{Name: "large"}}, &pushmeshv1.Candidate{}, 2, 4},
		"short expression": {&pushmeshv1.RankRequest{Expression: &pushmeshv1.ExpressionScorer{Expression: "features.a + 1.0"}}, &pushmeshv1.Candidate{}, chunk, chunk},
		"heavy filter":     {&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{}, Filter: heavy}, &pushmeshv1.Candidate{}, 1, 4},
	} {
		r := c.request
		for range 100 {
			r.Candidates = append(r.Candidates, c.candidate)
		}
		spec, err := Compile(r, Parts{Models: models})
		if err != nil {
			t.Fatal(name, err)
		}
		j, err := spec.Job(Candidates(r.GetCandidates()), []Profile{{Vector: r.GetProfileVector()}}, now)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := j.next(); err != nil || j.block.to < c.low || j.block.to > c.high {
			t.Errorf("%s: a block of %d, want %d to %d; %v", name, j.block.to, c.low, c.high, err)
		}
		if cost := spec.Cost(Candidates(r.GetCandidates()), 1); cost < 100*chunkCost/(j.block.to+1)/2 && j.block.to < chunk {
			t.Errorf("%s: 100 cost %d steps, and a block has %d", name, cost, j.block.to)
		}
	}
}
