package trees

import (
	"fmt"
	"sync"
)

// Format of a model file.
type Format int

// The formats that Parse reads.
const (
	LightGBMText Format = iota + 1
	XGBoostBinary
	XGBoostJSON
)

func (f Format) String() string {
	switch f {
	case LightGBMText:
		return "LightGBM text"
	case XGBoostBinary:
		return "XGBoost binary"
	case XGBoostJSON:
		return "XGBoost JSON"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

// Model is a parsed forest. It never changes.
type Model struct {
	format  Format
	columns []string
	// places of the columns by name.
	places map[string]int
	named  bool
	// objective as the file names it; transform makes predictions of raw scores in place.
	objective string
	transform func(out []float64)
	outputs   int
	// single: sums are float32, and so are the values of a row (XGBoost).
	single bool
	// base of each output, to which its trees are added.
	base []float64

	trees []tree
	slots []slot
	// steps, values, leaves and shares have an entry for each node; a tree's are one run, in the
	// order of breadth first.
	steps []step
	// values of leaves, 0 at splits.
	values []float64
	// leaves: a leaf's number in its tree, as the library reports it.
	leaves []int32
	// shares: which part of its parent's cover a node has.
	shares []float64
	// sets of categories, in words of 32.
	sets []uint32

	cost, explainCost int
	scratch           sync.Pool
}

type tree struct {
	// at and size are the tree's run of nodes.
	at, size uint32
	output   int32
	depth    int32
	// categorical: some split is.
	categorical bool
	// expected is the mean of the leaves by cover.
	expected float64
}

// Format of the file that the model was read from.
func (m *Model) Format() Format { return m.format }

// Columns are the names of a row's values, in order: the file's, or f0, f1, … (see Named). The
// caller must not change it.
func (m *Model) Columns() []string { return m.columns }

// Column is the place of a column by its name, the first where several share it.
func (m *Model) Column(name string) (int, bool) {
	place, ok := m.places[name]
	return place, ok
}

// Named reports whether the file gives the columns' names.
func (m *Model) Named() bool { return m.named }

// Objective is the file's name of what the model was trained for: "binary sigmoid:1",
// "multi:softprob".
func (m *Model) Objective() string { return m.objective }

// Outputs is how many scores a row gets: classes or targets, otherwise 1.
func (m *Model) Outputs() int { return m.outputs }

// Trees is how many trees there are, for all outputs together.
func (m *Model) Trees() int { return len(m.trees) }

// Nodes is how many splits and leaves all trees have.
func (m *Model) Nodes() int { return len(m.steps) }

// Cost bounds the steps from node to node that scoring one row takes: the sum of the trees' depths,
// and one for each tree and slot. On a server of 2025 RawBatch takes 1 to 2 ns for each, for a row
// alone about 5.
func (m *Model) Cost() int { return m.cost }

// ExplainCost bounds the same for Explain of all outputs: leaves times depth squared, over the
// trees. It takes about 3 ns for each.
func (m *Model) ExplainCost() int { return m.explainCost }
