package trees

import "fmt"

// Predict is Raw and then Transform: what the library predicts.
func (m *Model) Predict(row, out []float64) {
	m.Raw(row, out)
	m.Transform(out)
}

// Leaves gives the number of the leaf that the row reaches in each tree, as the library counts
// them. len(out) is Trees().
func (m *Model) Leaves(row []float64, out []int32) {
	if len(out) != len(m.trees) {
		panic(fmt.Sprintf("trees: %d places for the leaves of %d trees", len(out), len(m.trees)))
	}
	m.check(row, nil)
	s := m.borrow()
	m.fill(s.keys, row, 1)
	for i := range m.trees {
		t := &m.trees[i]
		out[i] = m.leaves[t.at+m.walk(m.steps[t.at:t.at+t.size], s.keys, 0)]
	}
	m.scratch.Put(s)
}
