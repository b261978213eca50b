package trees

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// expected is what a library gave for a model, see testdata/README.md.
type expected struct {
	Rows          [][]*float64
	Raw           [][]float64
	Predicted     [][]float64
	Leaves        [][]int32
	Contributions [][][]float64
}

func parseFile(t testing.TB, file string) *Model {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(data, Limits{})
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return m
}

// libraryModels calls test for each model that a library trained.
func libraryModels(t *testing.T, test func(t *testing.T, m *Model, rows [][]float64, e *expected)) {
	files, err := filepath.Glob("testdata/libraries/*.expected")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d models, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".expected"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var e expected
			if err := json.Unmarshal(data, &e); err != nil {
				t.Fatal(err)
			}
			test(t, parseFile(t, strings.TrimSuffix(file, ".expected")), e.rows(), &e)
		})
	}
}

func (e *expected) rows() [][]float64 {
	rows := make([][]float64, len(e.Rows))
	for i, row := range e.Rows {
		for _, v := range row {
			if v == nil {
				rows[i] = append(rows[i], math.NaN())
			} else {
				rows[i] = append(rows[i], *v)
			}
		}
	}
	return rows
}

func close64(a, b, relative float64) bool {
	return a == b || math.Abs(a-b) <= relative*math.Max(math.Abs(a), math.Abs(b))
}

func TestScoresAreTheLibrarys(t *testing.T) {
	libraryModels(t, func(t *testing.T, m *Model, rows [][]float64, e *expected) {
		if len(e.Raw[0]) != m.Outputs() || len(e.Leaves[0]) != m.Trees() {
			t.Fatalf("%d outputs and %d trees, want %d and %d", m.Outputs(), m.Trees(), len(e.Raw[0]), len(e.Leaves[0]))
		}
		hard := m.Objective() == "multi:softmax"
		raw, leaves := make([]float64, m.Outputs()), make([]int32, m.Trees())
		for i, row := range rows {
			m.Leaves(row, leaves)
			for k, leaf := range leaves {
				if leaf != e.Leaves[i][k] {
					t.Fatalf("row %d, tree %d: leaf %d, want %d", i, k, leaf, e.Leaves[i][k])
				}
			}
			m.Raw(row, raw)
			for k, v := range raw {
				if !close64(v, e.Raw[i][k], 1e-12) {
					t.Fatalf("row %d, output %d: raw %.17g, want %.17g", i, k, v, e.Raw[i][k])
				}
			}
			m.Predict(row, raw)
			for k, v := range raw {
				// The last place of a float32 is the exponential's that the library is linked with.
				if !hard && !close64(v, e.Predicted[i][k], map[bool]float64{true: 1.2e-7, false: 1e-12}[m.single]) {
					t.Fatalf("row %d, output %d: predicted %.17g, want %.17g", i, k, v, e.Predicted[i][k])
				}
			}
		}
	})
}

func TestContributionsAreTheLibrarys(t *testing.T) {
	libraryModels(t, func(t *testing.T, m *Model, rows [][]float64, e *expected) {
		out, raw := make([]float64, len(m.Columns())+1), make([]float64, m.Outputs())
		// XGBoost's are of float32, sums of many terms.
		tolerance := 1e-9
		if m.single {
			tolerance = 2e-5
		}
		for i, row := range rows {
			m.Raw(row, raw)
			for output := range m.Outputs() {
				m.Explain(row, output, out)
				sum := 0.0
				for k, v := range out {
					sum += v
					if want := e.Contributions[i][output][k]; math.Abs(v-want) > tolerance*(1+math.Abs(want)) {
						t.Fatalf("row %d, output %d, column %d: %g, want %g", i, output, k, v, want)
					}
				}
				if math.Abs(sum-raw[output]) > tolerance*(1+math.Abs(sum)) {
					t.Fatalf("row %d, output %d: contributions sum up to %g, raw is %g", i, output, sum, raw[output])
				}
			}
		}
	})
}

func table(t testing.TB, file string) [][]float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]float64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row []float64
		for _, w := range strings.Fields(lines.Text()) {
			v, err := strconv.ParseFloat(w, 64)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, v)
		}
		out = append(out, row)
	}
	return out
}

// sparse reads LibSVM lines: a label, then COLUMN:VALUE; what isn't there is missing.
func sparse(t testing.TB, file string, columns int) [][]float64 {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float64
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		row := make([]float64, columns)
		for i := range row {
			row[i] = math.NaN()
		}
		for _, w := range strings.Fields(line)[1:] {
			column, value, _ := strings.Cut(w, ":")
			i, err := strconv.Atoi(column)
			if err != nil {
				t.Fatal(err)
			}
			if row[i], err = strconv.ParseFloat(value, 64); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, row)
	}
	return out
}

func TestLightGBMReachesTheSameLeaves(t *testing.T) {
	m := parseFile(t, "testdata/leaves/lg_breast_cancer.txt")
	want := table(t, "testdata/leaves/lg_breast_cancer_data_pred_leaves.txt")
	got := make([]int32, m.Trees())
	for i, row := range table(t, "testdata/leaves/lg_breast_cancer_data.txt") {
		m.Leaves(row, got)
		for k := range got {
			if float64(got[k]) != want[i][k] {
				t.Fatalf("row %d, tree %d: leaf %d, want %v", i, k, got[k], want[i][k])
			}
		}
	}
}

func TestLightGBMDartPredictsTheSame(t *testing.T) {
	m := parseFile(t, "testdata/leaves/lg_dart_breast_cancer.model")
	want := table(t, "testdata/leaves/lg_dart_breast_cancer_true_predictions.txt")
	got := make([]float64, m.Outputs())
	for i, row := range table(t, "testdata/leaves/breast_cancer_test.tsv") {
		if m.Predict(row, got); !close64(got[0], want[i][0], 1e-12) {
			t.Fatalf("row %d: %v, want %v", i, got, want[i])
		}
	}
}

func TestXGBoostOf09ScoresTheSame(t *testing.T) {
	m := parseFile(t, "testdata/leaves/xgdermatology.model")
	want := table(t, "testdata/leaves/xgdermatology_true_predictions.txt")
	got := make([]float64, m.Outputs())
	for i, row := range sparse(t, "testdata/leaves/dermatology_test.libsvm", len(m.Columns())) {
		m.Raw(row, got)
		for k := range got {
			if got[k] != want[i][k] {
				t.Fatalf("row %d, output %d: %v, want %v", i, k, got[k], want[i][k])
			}
		}
	}
}
