package trees

import "fmt"

// lanes is how many rows walk together: enough to hide what a step waits for, few enough that their
// places stay in registers.
const lanes = 8

// scratch is what scoring a block of rows needs.
type scratch struct {
	// keys has an entry for each group of lanes and each slot, one group after the other.
	keys [][lanes]int64
	// path of Explain.
	path []element
}

// blockBytes of keys stay in the first-level cache beside a tree.
const blockBytes = 16 << 10

func (m *Model) newScratch() *scratch {
	groups := max(1, blockBytes/(8*lanes*max(1, len(m.slots))))
	return &scratch{keys: make([][lanes]int64, groups*max(1, len(m.slots)))}
}

func (m *Model) borrow() *scratch { return m.scratch.Get().(*scratch) }

// Raw scores one row: the sum of its leaves for each output. NaN is a missing value. len(row) is
// len(Columns()), len(out) is Outputs().
func (m *Model) Raw(row, out []float64) {
	m.check(row, out)
	m.RawBatch(row, out)
}

// Transform makes predictions of raw scores, in place: probabilities for the objectives of
// classification, means for those with a logarithmic link, and for a random forest the average of
// its trees. len(out) is Outputs().
func (m *Model) Transform(out []float64) { m.transform(out[:m.outputs]) }

// RawBatch is Raw for len(out)/Outputs() rows, which stand one after the other in rows, and so do
// their scores in out. Its time is Cost of each row.
func (m *Model) RawBatch(rows, out []float64) {
	n := len(out) / m.outputs
	if len(out) != n*m.outputs || len(rows) != n*len(m.columns) {
		panic(fmt.Sprintf("trees: %d values and %d scores are no rows of %d values and %d scores", len(rows), len(out), len(m.columns), m.outputs))
	}
	s := m.borrow()
	block := len(s.keys) / max(1, len(m.slots)) * lanes
	for first := 0; first < n; first += block {
		count := min(block, n-first)
		m.fill(s.keys, rows[first*len(m.columns):], count)
		m.scoreBlock(s.keys, count, out[first*m.outputs:(first+count)*m.outputs])
	}
	m.scratch.Put(s)
}

// fill reads count rows into slots.
func (m *Model) fill(keys [][lanes]int64, rows []float64, count int) {
	width := len(m.columns)
	for row := range count {
		values := rows[row*width : (row+1)*width]
		group := keys[row/lanes*len(m.slots):][:len(m.slots)]
		lane := row % lanes
		for i, slot := range m.slots {
			x := values[slot.column]
			if m.single {
				x = float64(float32(x))
			}
			group[i][lane] = slot.read(x)
		}
	}
}

// scoreBlock scores the rows in keys, tree by tree, so that a tree is read once.
func (m *Model) scoreBlock(keys [][lanes]int64, count int, out []float64) {
	for i := range out {
		out[i] = m.base[i%m.outputs]
	}
	var places [lanes]uint32
	for i := range m.trees {
		t := &m.trees[i]
		steps, values := m.steps[t.at:t.at+t.size], m.values[t.at:t.at+t.size]
		for first := 0; first < count; first += lanes {
			group := keys[first/lanes*len(m.slots):][:len(m.slots)]
			rows := min(lanes, count-first)
			if t.categorical || rows < lanes/2 {
				for lane := range rows {
					places[lane] = m.walk(steps, group, lane)
				}
			} else {
				walkLanes(steps, group, int(t.depth), &places)
			}
			at := first*m.outputs + int(t.output)
			for lane := range rows {
				if v := values[places[lane]]; m.single {
					out[at] = float64(float32(out[at] + v))
				} else {
					out[at] += v
				}
				at += m.outputs
			}
		}
	}
}

func (m *Model) check(row, out []float64) {
	if len(row) != len(m.columns) || out != nil && len(out) != m.outputs {
		panic(fmt.Sprintf("trees: a row of %d values for %d columns, %d scores for %d outputs", len(row), len(m.columns), len(out), m.outputs))
	}
}
