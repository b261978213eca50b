// Package treesgen makes forests and rows of any size for benchmarks and tests of internal/trees.
package treesgen

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// Forest is a generated model of numerical splits, with one output. Its trees have as many leaves
// each.
type Forest struct {
	Columns int
	Leaves  int
	Trees   []Tree
}

// Tree as LightGBM's files have it: splits 0 to leaves-2, where a child below 0 is leaf ^child.
// Values go left when they are <= Threshold or missing.
type Tree struct {
	Feature, Left, Right []int32
	Threshold            []float64
	Value                []float64
	// Count of rows at each split and each leaf.
	SplitCount, LeafCount []int
}

// New grows trees leaf by leaf, as LightGBM does: a leaf is picked by its count and split at a
// column and a threshold that some rows of Rows are on both sides of. The same arguments make the
// same forest.
func New(trees, leaves, columns int, seed uint64) *Forest {
	r := rand.New(rand.NewPCG(seed, 1))
	f := &Forest{Columns: columns, Leaves: leaves}
	for range trees {
		f.Trees = append(f.Trees, grow(r, leaves, columns))
	}
	return f
}

// box is a leaf while its tree grows: where it hangs, and which values reach it.
type box struct {
	split       int
	right       bool
	low, high   map[int32]float64
	count       int
	splitBefore bool
}

func grow(r *rand.Rand, leaves, columns int) Tree {
	var t Tree
	boxes := []box{{low: map[int32]float64{}, high: map[int32]float64{}, count: 1 << 16}}
	for len(boxes) < leaves {
		// The larger of two picks: trees are uneven, but not lists.
		at := r.IntN(len(boxes))
		if other := r.IntN(len(boxes)); boxes[other].count > boxes[at].count {
			at = other
		}
		b := boxes[at]
		column := int32(r.IntN(columns))
		low, high := b.low[column], 1.0
		if h, ok := b.high[column]; ok {
			high = h
		}
		part := 0.25 + 0.5*r.Float64()
		threshold := low + part*(high-low)
		split := len(t.Feature)
		t.Feature, t.Threshold = append(t.Feature, column), append(t.Threshold, threshold)
		t.Left, t.Right, t.SplitCount = append(t.Left, 0), append(t.Right, 0), append(t.SplitCount, b.count)
		t.hang(b, int32(split))
		left := int(float64(b.count) * part)
		boxes[at] = box{split: split, low: b.low, high: with(b.high, column, threshold), count: max(1, left), splitBefore: true}
		boxes = append(boxes, box{
			split: split, right: true, low: with(b.low, column, threshold), high: b.high, count: max(1, b.count-left), splitBefore: true,
		})
	}
	for i, b := range boxes {
		t.hang(b, ^int32(i))
		t.Value, t.LeafCount = append(t.Value, r.NormFloat64()/10), append(t.LeafCount, b.count)
	}
	return t
}

// hang puts a child where a box hung.
func (t *Tree) hang(b box, child int32) {
	switch {
	case !b.splitBefore:
	case b.right:
		t.Right[b.split] = child
	default:
		t.Left[b.split] = child
	}
}

func with(m map[int32]float64, column int32, v float64) map[int32]float64 {
	out := map[int32]float64{column: v}
	for k, old := range m {
		if k != column {
			out[k] = old
		}
	}
	return out
}

// Rows are n rows of values from 0 to 1, one after the other. A share of missing of them is NaN.
func Rows(n, columns int, missing float64, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 2))
	rows := make([]float64, n*columns)
	for i := range rows {
		if rows[i] = r.Float64(); missing > 0 && r.Float64() < missing {
			rows[i] = math.NaN()
		}
	}
	return rows
}

// LightGBM is the forest as a LightGBM text model.
func (f *Forest) LightGBM() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=%d\nobjective=lambdarank\nfeature_names=", f.Columns-1)
	for i := range f.Columns {
		fmt.Fprintf(&b, "%sc%d", separator(i), i)
	}
	b.WriteString("\n\n")
	for i := range f.Trees {
		t := &f.Trees[i]
		fmt.Fprintf(&b, "Tree=%d\nnum_leaves=%d\nnum_cat=0\n", i, f.Leaves)
		line(&b, "split_feature", t.Feature)
		line(&b, "threshold", t.Threshold)
		// Numerical, missing is NaN, default left.
		types := make([]int, len(t.Feature))
		for k := range types {
			types[k] = 10
		}
		line(&b, "decision_type", types)
		line(&b, "left_child", t.Left)
		line(&b, "right_child", t.Right)
		line(&b, "leaf_value", t.Value)
		line(&b, "leaf_count", t.LeafCount)
		line(&b, "internal_count", t.SplitCount)
		b.WriteString("shrinkage=1\n\n")
	}
	b.WriteString("end of trees\n")
	return []byte(b.String())
}

func line[T any](b *strings.Builder, key string, values []T) {
	b.WriteString(key + "=")
	for i, v := range values {
		fmt.Fprintf(b, "%s%v", separator(i), v)
	}
	b.WriteString("\n")
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return " "
}

// Flat is the forest and rows as little-endian numbers of 4 and 8 bytes, for programs in other
// languages: the numbers of trees, leaves, columns and rows; of each tree its columns, left and
// right children (4 bytes), thresholds and values (8); then the rows (8).
func (f *Forest) Flat(rows []float64) []byte {
	var out []byte
	word := func(v int32) { out = binary.LittleEndian.AppendUint32(out, uint32(v)) }
	numbers := func(values []float64) {
		for _, v := range values {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		}
	}
	for _, n := range []int{len(f.Trees), f.Leaves, f.Columns, len(rows) / f.Columns} {
		word(int32(n))
	}
	for i := range f.Trees {
		t := &f.Trees[i]
		for _, list := range [][]int32{t.Feature, t.Left, t.Right} {
			for _, v := range list {
				word(v)
			}
		}
		numbers(t.Threshold)
		numbers(t.Value)
	}
	numbers(rows)
	return out
}
