package score

import (
	"math"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// library has models by name, all in version 3.
type library map[string]*trees.Model

func (l library) Model(name string, version uint64) (*trees.Model, uint64, error) {
	if m, ok := l[name]; ok && (version == 0 || version == 3) {
		return m, 3, nil
	}
	return nil, 0, code.New(wirev1.Code_CODE_NOT_FOUND, "no such model")
}

func readLibrary(t *testing.T) library {
	t.Helper()
	l := library{}
	for _, name := range []string{"lightgbm-lambdarank", "lightgbm-multiclass", "lightgbm-categories"} {
		data, err := os.ReadFile("../trees/testdata/libraries/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if l[name], err = trees.Parse(data, trees.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// A model scores what it predicts for each row alone: a column is the candidate's feature, else the
// profile's, else missing.
func TestModels(t *testing.T) {
	models := readLibrary(t)
	names := keys(models)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "model")
		m := models[name]
		output := rapid.IntRange(0, m.Outputs()-1).Draw(t, "output")
		features := rapid.MapOfN(rapid.SampledFrom(append([]string{"none"}, m.Columns()...)), rapid.Float64Range(-8, 8), 0, 8)
		r := &pushmeshv1.RankRequest{Model: &pushmeshv1.ModelScorer{Name: name, Output: uint32(output)}}
		for range rapid.IntRange(0, 80).Draw(t, "candidates") {
			r.Candidates = append(r.Candidates, &pushmeshv1.Candidate{Features: features.Draw(t, "features")})
		}
		if rapid.Bool().Draw(t, "filtered") {
			r.Filter = `features.none > profile.none`
		}
		profiles := []Profile{
			{Features: features.Draw(t, "profile"), Explain: true},
			{Keep: 5, Explain: true},
			{Features: features.Draw(t, "third"), Candidates: everyOther(r)},
		}
		spec, err := Compile(r, Parts{Models: models})
		if err != nil || spec.Model() != 3 {
			t.Fatal(err, spec)
		}
		j, err := spec.Job(Candidates(r.GetCandidates()), profiles, now)
		finish(t, j, err)
		row, out := make([]float64, len(m.Columns())), make([]float64, m.Outputs())
		fillRow := func(c *pushmeshv1.Candidate, p *Profile) {
			for i, column := range m.Columns() {
				row[i] = math.NaN()
				if v, ok := p.Features[column]; ok {
					row[i] = v
				}
				if v, ok := c.GetFeatures()[column]; ok {
					row[i] = v
				}
			}
		}
		for i := range profiles {
			p := &profiles[i]
			checkPlaces(t, j, i, r.GetCandidates(), p, func(c *pushmeshv1.Candidate) (float64, bool) {
				fillRow(c, p)
				m.Raw(row, out)
				m.Transform(out)
				return out[output], r.GetFilter() == "" || c.GetFeatures()["none"] > p.Features["none"]
			})
			if p.Explain != (len(j.Explained(i)) == len(j.Places(i))) && len(j.Places(i)) > 0 {
				t.Fatalf("profile %d: %d explanations", i, len(j.Explained(i)))
			}
			for k, parts := range j.Explained(i) {
				fillRow(r.GetCandidates()[j.Places(i)[k].Index], p)
				m.Raw(row, out)
				sum := 0.0
				for _, part := range parts {
					sum += part.GetValue()
				}
				if math.Abs(sum-out[output]) > 1e-9 {
					t.Fatalf("profile %d, place %d: the parts make %v, the raw score is %v", i, k, sum, out[output])
				}
			}
		}
	})
}

func TestRefusesModels(t *testing.T) {
	models := readLibrary(t)
	for name, c := range map[string]struct {
		model  *pushmeshv1.ModelScorer
		models Models
		want   wirev1.Code
	}{
		"none here":         {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank"}, nil, wirev1.Code_CODE_UNSUPPORTED},
		"no name":           {&pushmeshv1.ModelScorer{}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"not a name":        {&pushmeshv1.ModelScorer{Name: "../x"}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"unknown":           {&pushmeshv1.ModelScorer{Name: "nope"}, models, wirev1.Code_CODE_NOT_FOUND},
		"unknown version":   {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", Version: 4}, models, wirev1.Code_CODE_NOT_FOUND},
		"output of nothing": {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", Output: 1}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"largest output":    {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", Output: math.MaxUint32}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"next to newest":    {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", NextVersion: 4}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"next to itself":    {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", Version: 4, NextVersion: 4}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"share of none":     {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", NextShare: 0.5}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"more than all":     {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", Version: 1, NextVersion: 4, NextShare: 1.5}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"share that is NaN": {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", Version: 1, NextVersion: 4, NextShare: math.NaN()}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"negative errors":   {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", MaxErrorShare: -1}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"slowdown below 1":  {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", MaxSlowdown: 0.5}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
		"slowdown of NaN":   {&pushmeshv1.ModelScorer{Name: "lightgbm-lambdarank", MaxSlowdown: math.NaN()}, models, wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		if _, err := Compile(&pushmeshv1.RankRequest{Model: c.model}, Parts{Models: c.models}); code.Of(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Explanations are bounded by how many there are.
func TestExplanationsAreBounded(t *testing.T) {
	spec, err := Compile(&pushmeshv1.RankRequest{Weighted: &pushmeshv1.WeightedScorer{}}, Parts{})
	if err != nil {
		t.Fatal(err)
	}
	candidates := make([]*pushmeshv1.Candidate, MaxExplained+1)
	if _, err := spec.Job(Candidates(candidates), []Profile{{Explain: true}}, now); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("too many: %v", err)
	}
	j, err := spec.Job(Candidates(candidates), []Profile{{Explain: true, Keep: MaxExplained}}, now)
	if finish(t, j, err); len(j.Explained(0)) != MaxExplained {
		t.Errorf("%d explanations", len(j.Explained(0)))
	}
}
