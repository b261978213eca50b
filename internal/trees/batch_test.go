package trees

import (
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/trees/treesgen"
)

func generated(t testing.TB, trees, leaves, columns int) *Model {
	t.Helper()
	m, err := Parse(treesgen.New(trees, leaves, columns, 1).LightGBM(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Rows that walk together, fill a block in part or are left over score like rows on their own.
func TestBatchIsRowByRow(t *testing.T) {
	m := generated(t, 20, 31, 41)
	for _, n := range []int{0, 1, 3, 4, 7, 8, 9, 64, 333} {
		rows := treesgen.Rows(n, 41, 0.1, uint64(n))
		out, one := make([]float64, n), make([]float64, 1)
		m.RawBatch(rows, out)
		for i := range out {
			if m.Raw(rows[i*41:(i+1)*41], one); one[0] != out[i] {
				t.Fatalf("%d rows: row %d is %v, alone %v", n, i, out[i], one[0])
			}
		}
	}
}

// Of library models too, which have several outputs, float32 sums and categories.
func TestBatchOfLibraryModels(t *testing.T) {
	libraryModels(t, func(t *testing.T, m *Model, rows [][]float64, e *expected) {
		var flat []float64
		for _, row := range rows {
			flat = append(flat, row...)
		}
		out := make([]float64, len(rows)*m.Outputs())
		m.RawBatch(flat, out)
		for i, v := range out {
			if want := e.Raw[i/m.Outputs()][i%m.Outputs()]; !close64(v, want, 1e-12) {
				t.Fatalf("score %d: %v, want %v", i, v, want)
			}
		}
	})
}

// The straightforward way through the generated trees, as a check of the layout.
func TestWalkIsTheTrees(t *testing.T) {
	forest := treesgen.New(10, 200, 5, 3)
	m, err := Parse(forest.LightGBM(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	rows := treesgen.Rows(50, 5, 0.1, 4)
	out := make([]float64, 50)
	m.RawBatch(rows, out)
	for i := range out {
		want := 0.0
		for _, tree := range forest.Trees {
			at := int32(0)
			for at >= 0 {
				if x := rows[i*5+int(tree.Feature[at])]; !(x > tree.Threshold[at]) {
					at = tree.Left[at]
				} else {
					at = tree.Right[at]
				}
			}
			want += tree.Value[^at]
		}
		if want != out[i] {
			t.Fatalf("row %d: %v, want %v", i, out[i], want)
		}
	}
}

func TestModelIsSafeForConcurrentUse(t *testing.T) {
	m := generated(t, 20, 31, 10)
	rows := treesgen.Rows(100, 10, 0.1, 5)
	want := make([]float64, 100)
	m.RawBatch(rows, want)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			out, why := make([]float64, 100), make([]float64, 11)
			for i := range 20 {
				m.RawBatch(rows, out)
				m.Explain(rows[i*10:(i+1)*10], 0, why)
				if out[i] != want[i] {
					t.Errorf("row %d: %v, want %v", i, out[i], want[i])
				}
			}
		})
	}
	wg.Wait()
}

// Scoring takes what it needs from the model's scratch.
func TestScoringDoesNotAllocate(t *testing.T) {
	m := generated(t, 10, 31, 10)
	rows, out := treesgen.Rows(64, 10, 0.1, 6), make([]float64, 64)
	// On average: a collection empties the pool, and the race detector drops a quarter of what is
	// put back.
	if n := testing.AllocsPerRun(2000, func() { m.RawBatch(rows, out) }); n >= 1 {
		t.Fatalf("%v allocations", n)
	}
}

// Four nodes fill a cache line.
func TestNodesAreSmall(t *testing.T) {
	if size := reflect.TypeFor[step]().Size(); size != 16 {
		t.Errorf("%d bytes a node", size)
	}
}

// Each threshold's neighbours, both infinities and both zeros order as floats do.
func TestOrderIsThatOfFloats(t *testing.T) {
	tiny := math.SmallestNonzeroFloat64
	values := []float64{math.Inf(-1), -math.MaxFloat64, -1, math.Nextafter(-1, 0), -tiny, math.Copysign(0, -1), 0, tiny, 1, math.Nextafter(1, 2), math.MaxFloat64, math.Inf(1)}
	for _, x := range values {
		for _, threshold := range values {
			if left := orderBits(x) <= order(threshold); left != (x <= threshold) {
				t.Errorf("%v <= %v is %v", x, threshold, left)
			}
			x, threshold := float64(float32(x)), float32(threshold)
			if left := orderBits(x) <= orderBelow(threshold); left != (x < float64(threshold)) {
				t.Errorf("%v < %v is %v", x, threshold, left)
			}
		}
	}
}

func BenchmarkTrees(b *testing.B) {
	for _, shape := range []struct{ trees, leaves, columns int }{{100, 31, 41}, {500, 31, 41}, {500, 255, 41}} {
		m := generated(b, shape.trees, shape.leaves, shape.columns)
		for _, n := range []int{1, 8, 1000} {
			for _, missing := range []float64{0, 0.2} {
				b.Run(fmt.Sprintf("%dx%dx%d/rows=%d/missing=%v", shape.trees, shape.leaves, shape.columns, n, missing), func(b *testing.B) {
					rows, out := treesgen.Rows(n, shape.columns, missing, 7), make([]float64, n)
					for b.Loop() {
						m.RawBatch(rows, out)
					}
					b.ReportMetric(float64(b.N*n*shape.trees)/b.Elapsed().Seconds()/1e6, "Mtraversals/s")
					b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*n*m.Cost()), "ns/cost")
				})
			}
		}
	}
}

// A row at a time, each of them another: what the interleaving gains over is this.
func BenchmarkTreesRows(b *testing.B) {
	const n = 1000
	m := generated(b, 500, 31, 41)
	rows, out := treesgen.Rows(n, 41, 0, 7), make([]float64, 1)
	for b.Loop() {
		for i := range n {
			m.Raw(rows[i*41:(i+1)*41], out)
		}
	}
	b.ReportMetric(float64(b.N*n*m.Trees())/b.Elapsed().Seconds()/1e6, "Mtraversals/s")
}

func BenchmarkTreesExplain(b *testing.B) {
	m := generated(b, 500, 31, 41)
	row, out := treesgen.Rows(1, 41, 0, 7), make([]float64, 42)
	for b.Loop() {
		m.Explain(row, 0, out)
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*m.ExplainCost()), "ns/cost")
}

func BenchmarkTreesParse(b *testing.B) {
	data := treesgen.New(500, 31, 41, 1).LightGBM()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Parse(data, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
