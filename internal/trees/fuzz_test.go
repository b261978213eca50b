package trees

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// small limits keep what a fuzzed file can ask for within a fuzzer's patience.
var small = Limits{Bytes: 1 << 20, Trees: 200, Nodes: 5000, Columns: 200, Outputs: 20, Depth: 40, CategoryWords: 5000}

// tryModel parses data; what was parsed has to score.
func tryModel(t *testing.T, data []byte, parse func([]byte, Limits) (*Model, error)) {
	m, err := parse(data, small.withDefaults())
	if err != nil {
		if m != nil {
			t.Fatal("a model and an error")
		}
		return
	}
	if m.Cost() > (small.Depth+1)*m.Trees()+8*m.Nodes() || m.Nodes() > small.Nodes {
		t.Fatalf("cost %d of %d nodes", m.Cost(), m.Nodes())
	}
	const rows = 9
	flat := make([]float64, rows*len(m.Columns()))
	for i := range flat {
		flat[i] = [...]float64{math.NaN(), 0, 1, -1, 0.5, 1e30, math.Inf(1), math.Inf(-1), 3, 40}[i*7%10]
	}
	out, one := make([]float64, rows*m.Outputs()), make([]float64, m.Outputs())
	m.RawBatch(flat, out)
	leaves := make([]int32, m.Trees())
	for i := range rows {
		row := flat[i*len(m.Columns()) : (i+1)*len(m.Columns())]
		m.Raw(row, one)
		for k, v := range one {
			if both := out[i*m.Outputs()+k]; v != both && !(math.IsNaN(v) && math.IsNaN(both)) {
				t.Fatalf("row %d, output %d: %v alone, %v in a batch", i, k, v, both)
			}
		}
		m.Leaves(row, leaves)
		m.Transform(one)
	}
	if m.ExplainCost() < 1<<20 {
		m.Explain(flat[:len(m.Columns())], 0, make([]float64, len(m.Columns())+1))
	}
}

func seeds(f *testing.F, pattern string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzLightGBM(f *testing.F) {
	f.Add([]byte(lightText))
	seeds(f, "testdata/libraries/lightgbm-*.txt")
	f.Fuzz(func(t *testing.T, data []byte) { tryModel(t, data, parseLightGBM) })
}

func FuzzXGBoostBinary(f *testing.F) {
	seeds(f, "testdata/*/xg*.model")
	f.Fuzz(func(t *testing.T, data []byte) { tryModel(t, data, parseXGBoostBinary) })
}

func FuzzXGBoostJSON(f *testing.F) {
	f.Add([]byte(`{"learner":{"gradient_booster":{"name":"gbtree","model":{"tree_info":[0],"trees":[` + manyCategories + `]}}}}`))
	seeds(f, "testdata/libraries/xgboost-*.json")
	f.Fuzz(func(t *testing.T, data []byte) { tryModel(t, data, parseXGBoostJSON) })
}
