package trees

import (
	"bytes"
	"strconv"
)

// Bits of a decision_type.
const (
	lightCategorical = 1
	lightDefaultLeft = 2
	// lightMissing: two bits from here on are the kind of missing values.
	lightMissing = 2
)

// lightTree is a tree's lines, by their key, and the first fault found in them.
type lightTree struct {
	lines map[string][]byte
	err   error
}

// tree reads the lines after "Tree=", up to an empty one.
func (l *lightFile) tree() error {
	t := lightTree{lines: make(map[string][]byte, 24)}
	for {
		line, ok := l.line()
		if !ok || len(line) == 0 {
			break
		}
		key, value, _ := bytes.Cut(line, []byte("="))
		if t.lines[string(key)] = value; len(t.lines) > 64 {
			return invalid("tree %d has too many lines", len(l.trees))
		}
	}
	leaves := t.whole("num_leaves")
	if t.err == nil && (leaves < 1 || leaves > l.limits.Nodes) {
		return beyond("leaves in a tree", leaves, l.limits.Nodes)
	}
	if bytes.Equal(t.lines["is_linear"], []byte("1")) {
		return unsupported("linear trees")
	}
	if err := l.room(2*leaves - 1); err != nil {
		return err
	}
	nodes := t.nodes(leaves, l.limits.CategoryWords)
	if t.err != nil {
		return invalid("tree %d: %s", len(l.trees), t.err)
	}
	return l.add(nodes)
}

// nodes of the tree, whose splits list at most so many words of categories: its splits, and behind
// them its leaves, which the file calls -1, -2, ….
func (t *lightTree) nodes(leaves, words int) []node {
	values := t.numbers("leaf_value", leaves)
	if t.err != nil {
		return nil
	}
	splits := leaves - 1
	nodes := make([]node, splits+leaves)
	for i, v := range values {
		nodes[splits+i] = node{left: -1, number: int32(i), value: v, cover: -1}
	}
	if splits == 0 {
		return nodes
	}
	features, thresholds := t.integers("split_feature", splits), t.numbers("threshold", splits)
	lefts, rights := t.integers("left_child", splits), t.integers("right_child", splits)
	types := make([]int32, splits)
	if t.lines["decision_type"] != nil {
		types = t.integers("decision_type", splits)
	}
	t.covers(nodes, leaves)
	sets := t.sets(words)
	if t.err != nil {
		return nil
	}
	for i := range splits {
		n := &nodes[i]
		n.feature, n.threshold = features[i], thresholds[i]
		n.left, n.right = lightChild(lefts[i], splits), lightChild(rights[i], splits)
		n.defaultLeft = types[i]&lightDefaultLeft != 0
		n.missing = missing(types[i] >> lightMissing & 3)
		if n.missing > missingNaN || types[i] < 0 {
			t.fail("decision_type is " + strconv.Itoa(int(types[i])))
		}
		// A tree that has no categorical splits is not looked at for them.
		if sets != nil && types[i]&lightCategorical != 0 {
			n.categorical = true
			if c := thresholds[i]; c >= 0 && c < float64(len(sets)) {
				n.set = sets[int(c)]
			} else {
				t.fail("a categorical split without its categories")
			}
		}
		if n.left < 0 || n.right < 0 {
			t.fail("a child does not exist")
		}
	}
	return nodes
}

// lightChild makes a place in nodes of a child, -1 where it can't be one.
func lightChild(c int32, splits int) int32 {
	if c >= 0 {
		if int(c) >= splits {
			return -1
		}
		return c
	}
	if int(^c) > splits {
		return -1
	}
	return int32(splits) + ^c
}

// covers are how many rows came by, where the file says it.
func (t *lightTree) covers(nodes []node, leaves int) {
	if t.lines["leaf_count"] == nil || t.lines["internal_count"] == nil {
		return
	}
	for i, c := range t.numbers("leaf_count", leaves) {
		nodes[leaves-1+i].cover = c
	}
	for i, c := range t.numbers("internal_count", leaves-1) {
		nodes[i].cover = c
	}
}

// sets of categories of all the tree's splits, together at most so many words; nil where it has
// none.
func (t *lightTree) sets(most int) [][]uint32 {
	n := t.whole("num_cat")
	if n <= 0 || t.err != nil {
		return nil
	}
	bounds := t.integers("cat_boundaries", n+1)
	if t.err != nil {
		return nil
	}
	if int(bounds[n]) > most {
		t.fail("too many categories")
	}
	var all []uint32
	t.fields("cat_threshold", int(bounds[n]), func(_ int, field string) error {
		v, err := strconv.ParseUint(field, 10, 32)
		all = append(all, uint32(v))
		return err
	})
	if t.err != nil {
		return nil
	}
	sets := make([][]uint32, n)
	for i := range sets {
		if bounds[i] < 0 || bounds[i] > bounds[i+1] || int(bounds[i+1]) > len(all) {
			t.fail("cat_boundaries are not ascending")
			return nil
		}
		sets[i] = all[bounds[i]:bounds[i+1]]
	}
	return sets
}

func (t *lightTree) fail(text string) {
	if t.err == nil {
		t.err = faultError(text)
	}
}

type faultError string

func (f faultError) Error() string { return string(f) }

// fields gives the line's n fields to use, one after the other.
func (t *lightTree) fields(key string, n int, use func(i int, field string) error) {
	line := t.lines[key]
	// Before anything is allocated for them.
	if t.err == nil && (n < 0 || n > len(line)/2+1) {
		t.fail(key + " is too short")
	}
	i := 0
	for t.err == nil {
		field, rest := nextField(line)
		if len(field) == 0 {
			break
		}
		if line = rest; i == n {
			t.fail(key + " is too long")
		} else if err := use(i, string(field)); err != nil {
			t.fail(key + ": " + err.Error())
		}
		i++
	}
	if i < n {
		t.fail(key + " is too short")
	}
}

// nextField cuts the first of a line's fields off. It is empty at the line's end.
func nextField(line []byte) (field, rest []byte) {
	line = bytes.TrimLeft(line, " ")
	if end := bytes.IndexByte(line, ' '); end >= 0 {
		return line[:end], line[end:]
	}
	return line, nil
}

func (t *lightTree) numbers(key string, n int) []float64 {
	var out []float64
	t.fields(key, n, func(_ int, field string) error {
		v, err := strconv.ParseFloat(field, 64)
		out = append(out, v)
		return err
	})
	return out
}

func (t *lightTree) integers(key string, n int) []int32 {
	var out []int32
	t.fields(key, n, func(_ int, field string) error {
		v, err := strconv.ParseInt(field, 10, 32)
		out = append(out, int32(v))
		return err
	})
	return out
}

// whole is the line's one number.
func (t *lightTree) whole(key string) int {
	if v := t.integers(key, 1); t.err == nil {
		return int(v[0])
	}
	return 0
}
