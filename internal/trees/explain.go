package trees

import "fmt"

// element of a path: a column that was split on, and which part of the rows that lack it (zero) and
// that have it (one) go on, and the weight of all sets of the path's columns that are as large as
// the element's place.
type element struct {
	column    int32
	zero, one float64
	weight    float64
}

// Explain gives each column's contribution to a row's raw score of an output: exact TreeSHAP where
// a column that is left out takes both branches by their cover. out has a place for each column
// and, last, the constant part; they sum up to the raw score. Its time is bounded by ExplainCost.
func (m *Model) Explain(row []float64, output int, out []float64) {
	if len(out) != len(m.columns)+1 || output < 0 || output >= m.outputs {
		panic(fmt.Sprintf("trees: %d places for the contributions of %d columns, output %d of %d", len(out), len(m.columns), output, m.outputs))
	}
	m.check(row, nil)
	s := m.borrow()
	m.fill(s.keys, row, 1)
	clear(out)
	bias := m.base[output]
	for i := range m.trees {
		t := &m.trees[i]
		if int(t.output) != output {
			continue
		}
		bias += t.expected
		// Each level has a copy of the path so far, one longer than the one above.
		if need := int(t.depth+2) * int(t.depth+3) / 2; len(s.path) < need {
			s.path = make([]element, need)
		}
		e := explainer{Model: m, tree: t, keys: s.keys, out: out}
		e.visit(0, s.path, 0, element{column: -1, zero: 1, one: 1})
	}
	out[len(m.columns)] = bias
	m.scratch.Put(s)
}

// explainer follows one row through one tree, both ways at each split.
type explainer struct {
	*Model
	*tree
	keys [][lanes]int64
	out  []float64
}

// visit adds what the leaves below place contribute. path holds the depth elements above, and then
// room; last is the split that leads here.
func (e *explainer) visit(place uint32, path []element, depth int, last element) {
	extend(path, depth, last)
	s := &e.steps[e.at+place]
	if s.child == place {
		value := e.values[e.at+place]
		for i := 1; i <= depth; i++ {
			el := &path[i]
			e.out[el.column] += unwoundSum(path, depth, i) * (el.one - el.zero) * value
		}
		return
	}
	slot := s.slot &^ category
	hot := e.next(s, e.keys[slot][0])
	cold := 2*s.child + 1 - hot
	column := e.slots[slot].column
	zero, one := 1.0, 1.0
	// A column that was split on before is taken out, and comes in again with both splits' shares.
	for i := 1; i <= depth; i++ {
		if path[i].column == column {
			zero, one = path[i].zero, path[i].one
			unwind(path, depth, i)
			depth--
			break
		}
	}
	e.branch(hot, path, depth, element{column: column, zero: zero * e.shares[e.at+hot], one: one})
	e.branch(cold, path, depth, element{column: column, zero: zero * e.shares[e.at+cold]})
}

// branch visits a child, with a copy of the path above it.
func (e *explainer) branch(child uint32, path []element, depth int, next element) {
	// What neither kind of row reaches contributes nothing.
	if next.zero == 0 && next.one == 0 {
		return
	}
	below := path[depth+1:]
	copy(below, path[:depth+1])
	e.visit(child, below, depth+1, next)
}
