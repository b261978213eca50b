package trees

import (
	"bytes"
	"math"
	"os"
	"regexp"
	"testing"

	"github.com/pushmesh/pushmesh/internal/trees/treesgen"
)

// What other versions of XGBoost write otherwise is read alike.
func TestXGBoostJSONOfOtherVersions(t *testing.T) {
	for _, c := range []struct{ model, old, text string }{
		{"logistic", `"base_score":"3E-1"`, `"base_score":"[3E-1]"`},
		{"softprob", `"base_score":"5E-1"`, `"base_score":"[5E-1,5E-1,5E-1]"`},
		{"logistic", `"version":\[1,7,4\]`, `"version":[3,1,0]`},
		{"dart", `"name":"gbtree"`, `"name":"gbtree","iteration_indptr":[0,1]`},
		// In old files booleans are booleans, and there is no split_type.
		{"logistic", `"default_left":\[1,`, `"default_left":[true,`},
		{"logistic", `"split_type":\[[0,]*\],`, ``},
		// What a later version may add.
		{"logistic", `"attributes":\{`, `"cats":{"enc":[{"x":[1,-2.5e3,null]}]},"attributes":{"a":"\"b\"",`},
	} {
		data, err := os.ReadFile("testdata/libraries/xgboost-" + c.model + ".json")
		if err != nil {
			t.Fatal(err)
		}
		want, err := Parse(data, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		changed := regexp.MustCompile(c.old).ReplaceAll(data, []byte(c.text))
		if bytes.Equal(changed, data) {
			t.Errorf("%s has no %s", c.model, c.old)
		}
		got, err := Parse(changed, Limits{})
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		rows := treesgen.Rows(20, len(want.Columns()), 0.2, 1)
		a, b := make([]float64, 20*want.Outputs()), make([]float64, 20*want.Outputs())
		want.RawBatch(rows, a)
		got.RawBatch(rows, b)
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%s: score %d is %v, was %v", c.text, i, b[i], a[i])
			}
		}
	}
}

// Whatever the file says of covers, contributions are finite and sum up to the score.
func TestContributionsWithoutCovers(t *testing.T) {
	for _, counts := range []string{
		"", "leaf_count=0 0 0\ninternal_count=0 0", "leaf_count=-1 2 3\ninternal_count=6 4", "leaf_count=1 0 0\ninternal_count=1 0",
		"leaf_count=1e308 1e308 1e308\ninternal_count=1 1e308",
	} {
		text := bytes.Replace([]byte(lightText), []byte("leaf_count=1 2 3\ninternal_count=6 4"), []byte(counts), 1)
		if counts == "" {
			text = bytes.Replace(text, []byte("\n\nshrinkage"), []byte("\nshrinkage"), 1)
		}
		m, err := Parse(text, Limits{})
		if err != nil {
			t.Fatalf("%q: %v", counts, err)
		}
		for _, row := range [][]float64{{0, 0}, {1, 1}, {1, 2}, {math.NaN(), math.NaN()}} {
			out, raw := make([]float64, 3), make([]float64, 1)
			m.Explain(row, 0, out)
			m.Raw(row, raw)
			if sum := out[0] + out[1] + out[2]; !(math.Abs(sum-raw[0]) < 1e-9) {
				t.Errorf("%q: contributions %v sum up to %v, raw is %v", counts, out, sum, raw[0])
			}
		}
	}
}

// The file's names of the columns, and ours where it has none.
func TestColumns(t *testing.T) {
	m := parseFile(t, "testdata/libraries/lightgbm-binary.txt")
	if !m.Named() || m.Columns()[7] != "Column_7" || m.Format() != LightGBMText || m.Objective() != "binary sigmoid:1.5" {
		t.Errorf("%v %q %v %q", m.Named(), m.Columns(), m.Format(), m.Objective())
	}
	m = parseFile(t, "testdata/libraries/xgboost-poisson.model")
	if m.Named() || m.Columns()[7] != "f7" || m.Format() != XGBoostBinary || m.Objective() != "count:poisson" {
		t.Errorf("%v %q %v %q", m.Named(), m.Columns(), m.Format(), m.Objective())
	}
}
