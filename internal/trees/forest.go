package trees

import (
	"math"
)

// missing says which values of a numerical split take its default direction.
type missing uint8

const (
	// missingNone: NaN counts as 0.
	missingNone missing = iota
	// missingZero: NaN, and what is next to 0.
	missingZero
	missingNaN
)

// node of a tree as the file has it.
type node struct {
	// left and right are places in the tree's nodes; a leaf has -1 in left.
	left, right int32
	feature     int32
	// number of a leaf, as the library reports it.
	number      int32
	missing     missing
	defaultLeft bool
	// Values go left when they are <= threshold; or, where categorical, those whose bit in set is
	// set go to the left (setRight: to the right).
	categorical, setRight bool
	threshold             float64
	set                   []uint32
	// value of a leaf.
	value float64
	// cover is how much of the training data came by, in rows or their weights.
	cover float64
}

// forest puts a model together, tree by tree. It refuses what isn't a tree.
type forest struct {
	*Model
	limits Limits
	// connected: a node that can't be reached from the root is a fault of the file. XGBoost leaves
	// pruned ones behind.
	connected bool
	// widest is the largest column that a split looks at, -1 before the first one.
	widest int32
	slotOf map[slot]uint32
	// order and depth are of the tree in hand: the file's places in the order of breadth first.
	order []int32
	depth []int32
	seen  []bool
}

func newForest(format Format, limits Limits) *forest {
	return &forest{Model: &Model{format: format}, limits: limits, widest: -1, slotOf: map[slot]uint32{}}
}

// room reports whether a tree of so many nodes still fits; called before anything is allocated for
// it.
func (f *forest) room(nodes int) error {
	if len(f.trees) >= f.limits.Trees {
		return beyond("trees", len(f.trees)+1, f.limits.Trees)
	}
	if nodes > f.limits.Nodes-len(f.steps) {
		return beyond("nodes", len(f.steps)+nodes, f.limits.Nodes)
	}
	return nil
}

// add appends a tree whose root is nodes[0].
func (f *forest) add(nodes []node) error {
	name := len(f.trees)
	if err := f.room(len(nodes)); err != nil {
		return err
	}
	if err := f.walk(nodes); err != nil {
		return err
	}
	t := tree{at: uint32(len(f.steps)), size: uint32(len(f.order)), depth: f.depth[len(f.depth)-1]}
	child := uint32(1)
	for place, at := range f.order {
		n := &nodes[at]
		s := step{key: never, child: uint32(place)}
		if n.left >= 0 {
			s.child = child
			child += 2
			if err := f.split(&s, n); err != nil {
				return invalid("tree %d: %s", name, err)
			}
			t.categorical = t.categorical || n.categorical
			f.values, f.leaves = append(f.values, 0), append(f.leaves, -1)
		} else {
			if math.IsNaN(n.value) || math.IsInf(n.value, 0) {
				return invalid("tree %d: a leaf is %v", name, n.value)
			}
			f.values, f.leaves = append(f.values, n.value), append(f.leaves, n.number)
		}
		f.steps = append(f.steps, s)
		f.shares = append(f.shares, 1)
	}
	f.share(nodes, &t)
	f.trees = append(f.trees, t)
	return nil
}

// walk fills order and depth, and refuses nodes that are no tree. A split's children come one after
// the other, the one whose comparison holds first.
func (f *forest) walk(nodes []node) error {
	if len(nodes) == 0 {
		return invalid("tree %d has no nodes", len(f.trees))
	}
	f.order, f.depth = append(f.order[:0], 0), append(f.depth[:0], 0)
	if cap(f.seen) < len(nodes) {
		f.seen = make([]bool, len(nodes))
	}
	f.seen = f.seen[:len(nodes)]
	clear(f.seen)
	f.seen[0] = true
	for i := 0; i < len(f.order); i++ {
		n := &nodes[f.order[i]]
		if n.left < 0 {
			continue
		}
		depth := f.depth[i] + 1
		if int(depth) > f.limits.Depth {
			return invalid("tree %d is deeper than %d", len(f.trees), f.limits.Depth)
		}
		first, second := n.children()
		for _, c := range [2]int32{first, second} {
			if c < 0 || int(c) >= len(nodes) {
				return invalid("tree %d: node %d has child %d, which does not exist", len(f.trees), f.order[i], c)
			}
			if f.seen[c] {
				return invalid("tree %d: node %d has two parents", len(f.trees), c)
			}
			f.seen[c] = true
			f.order, f.depth = append(f.order, c), append(f.depth, depth)
		}
	}
	if f.connected && len(f.order) != len(nodes) {
		return invalid("tree %d: %d of its nodes can't be reached from the root", len(f.trees), len(nodes)-len(f.order))
	}
	return nil
}

// children in the order of the layout: step goes to the first where its comparison holds.
func (n *node) children() (first, second int32) {
	if n.categorical && n.setRight {
		return n.right, n.left
	}
	return n.left, n.right
}

// share fills the shares of the tree that was just laid out, and its expected value. Where the
// file's covers say nothing, each leaf weighs the same.
func (f *forest) share(nodes []node, t *tree) {
	covers := make([]float64, len(f.order))
	known := false
	for i, at := range f.order {
		c := nodes[at].cover
		if !(c >= 0) || math.IsInf(c, 0) {
			known = false
			break
		}
		covers[i] = c
		known = known || c > 0
	}
	steps := f.steps[t.at:]
	if !known {
		for i := len(steps) - 1; i >= 0; i-- {
			covers[i] = 1
			if c := steps[i].child; int(c) != i {
				covers[i] = covers[c] + covers[c+1]
			}
		}
	}
	shares, values := f.shares[t.at:], f.values[t.at:]
	for i := range steps {
		c := steps[i].child
		if int(c) == i {
			continue
		}
		shares[c], shares[c+1] = 0.5, 0.5
		// Halves, so that the sum of two large covers is finite.
		if sum := covers[c]/2 + covers[c+1]/2; sum > 0 {
			shares[c], shares[c+1] = covers[c]/2/sum, covers[c+1]/2/sum
		}
	}
	// From here on covers are the means of subtrees.
	for i := len(steps) - 1; i >= 0; i-- {
		covers[i] = values[i]
		if c := steps[i].child; int(c) != i {
			covers[i] = shares[c]*covers[c] + shares[c+1]*covers[c+1]
		}
	}
	t.expected = covers[0]
}

// finish checks what needs the whole file, and gives the model away. columns is how many a row has,
// names of them may be nil.
func (f *forest) finish(columns int, names []string) (*Model, error) {
	m := f.Model
	if columns > f.limits.Columns {
		return nil, beyond("columns", columns, f.limits.Columns)
	}
	if int(f.widest) >= columns {
		return nil, invalid("a split uses column %d of %d", f.widest, columns)
	}
	m.columns, m.named = names, names != nil
	if !m.named {
		m.columns = defaultNames(columns)
	}
	m.places = make(map[string]int, columns)
	for i := len(m.columns) - 1; i >= 0; i-- {
		m.places[m.columns[i]] = i
	}
	m.cost = len(m.slots)
	for i := range m.trees {
		t := &m.trees[i]
		if t.output < 0 || int(t.output) >= m.outputs {
			return nil, invalid("tree %d is of output %d of %d", i, t.output, m.outputs)
		}
		m.cost += int(t.depth) + 1
		m.explainCost += (int(t.size) + 1) / 2 * int(t.depth+1) * int(t.depth+1)
	}
	m.scratch.New = func() any { return m.newScratch() }
	return m, nil
}
