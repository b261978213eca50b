package trees

// jsonTree is a tree's arrays, each with an entry for every node. They are used again for the next
// tree.
type jsonTree struct {
	left, right, feature, defaultLeft, kind []int64
	threshold, cover                        []float64
	// Of each categorical split: its node, and its run of categories.
	categoryNodes, segments, sizes, categories []int64
	vector                                     int64
}

// arrays by the file's names.
func (t *jsonTree) wholes(key string) *[]int64 {
	switch key {
	case "left_children":
		return &t.left
	case "right_children":
		return &t.right
	case "split_indices":
		return &t.feature
	case "default_left":
		return &t.defaultLeft
	case "split_type":
		return &t.kind
	case "categories_nodes":
		return &t.categoryNodes
	case "categories_segments":
		return &t.segments
	case "categories_sizes":
		return &t.sizes
	case "categories":
		return &t.categories
	}
	return nil
}

func (t *jsonTree) numbers(key string) *[]float64 {
	switch key {
	case "split_conditions":
		return &t.threshold
	case "sum_hessian":
		return &t.cover
	}
	return nil
}

func (f *jsonFile) readTree() {
	t := &f.tree
	for _, a := range []*[]int64{&t.left, &t.right, &t.feature, &t.defaultLeft, &t.kind, &t.categoryNodes, &t.segments, &t.sizes, &t.categories} {
		*a = (*a)[:0]
	}
	t.threshold, t.cover, t.vector = t.threshold[:0], t.cover[:0], 0
	f.object(func(key string) {
		if a := t.wholes(key); a != nil {
			f.wholes(a, key == "categories")
		} else if a := t.numbers(key); a != nil {
			*a = (*a)[:0]
			f.array(func() { f.bounded(len(*a), f.limits.Nodes); *a = append(*a, f.number()) })
		} else if key == "tree_param" {
			f.object(func(key string) {
				if key == "size_leaf_vector" {
					t.vector = f.whole()
				} else {
					f.skip()
				}
			})
		} else {
			f.skip()
		}
	})
	if f.jsonReader.err == nil && t.vector > 1 {
		f.jsonReader.err = unsupported("leaves that are vectors of %d", t.vector)
	}
	if f.jsonReader.err == nil {
		f.jsonReader.err = f.room(len(t.left))
	}
	if f.jsonReader.err == nil {
		f.jsonReader.err = f.addTree(t)
	}
}

func (f *jsonFile) wholes(a *[]int64, categories bool) {
	most := f.limits.Nodes
	if categories {
		most = f.limits.CategoryWords
	}
	*a = (*a)[:0]
	f.array(func() { f.bounded(len(*a), most); *a = append(*a, f.whole()) })
}

// bounded fails where an array is full.
func (f *jsonFile) bounded(n, most int) {
	if n >= most && f.jsonReader.err == nil {
		f.jsonReader.err = beyond("entries in a tree's array", n+1, most)
	}
}

func (f *jsonFile) addTree(t *jsonTree) error {
	n := len(t.left)
	if len(t.right) != n || len(t.feature) != n || len(t.defaultLeft) != n || len(t.threshold) != n ||
		len(t.cover) != n && len(t.cover) != 0 || len(t.kind) != n && len(t.kind) != 0 {
		return invalid("tree %d: its arrays differ in length", len(f.trees))
	}
	nodes := make([]node, n)
	for i := range nodes {
		nodes[i] = t.node(i)
	}
	if err := f.categories(nodes, t); err != nil {
		return err
	}
	return f.add(nodes)
}

func (t *jsonTree) node(i int) node {
	n := node{left: place(t.left[i]), right: place(t.right[i]), number: int32(i), missing: missingNaN, cover: -1}
	if len(t.cover) > 0 {
		n.cover = t.cover[i]
	}
	if t.left[i] == -1 {
		n.value = t.threshold[i]
		return n
	}
	n.feature, n.threshold, n.defaultLeft = place(t.feature[i]), t.threshold[i], t.defaultLeft[i] != 0
	n.categorical = len(t.kind) > 0 && t.kind[i] == 1
	n.setRight = n.categorical
	return n
}

// place is an int32, or the largest one, which is a place that no tree has.
func place(v int64) int32 {
	if v < -1 || v > 1<<31-1 {
		return 1<<31 - 1
	}
	return int32(v)
}

// categories gives the categorical splits their sets.
func (f *jsonFile) categories(nodes []node, t *jsonTree) error {
	bad := invalid("tree %d: categories that belong to no split, or none for one", len(f.trees))
	if len(t.segments) != len(t.categoryNodes) || len(t.sizes) != len(t.categoryNodes) {
		return bad
	}
	room := f.limits.CategoryWords - len(f.sets)
	for i, at := range t.categoryNodes {
		first, size := t.segments[i], t.sizes[i]
		if at < 0 || at >= int64(len(nodes)) || first < 0 || size < 1 || size > int64(len(t.categories)) || first > int64(len(t.categories))-size {
			return bad
		}
		n := &nodes[at]
		if !n.categorical || n.set != nil {
			return bad
		}
		set, err := setOf(t.categories[first:first+size], room)
		if err != nil {
			return invalid("tree %d: %s", len(f.trees), err)
		}
		n.set = set
		room -= len(set)
	}
	for i := range nodes {
		if nodes[i].left >= 0 && nodes[i].categorical && nodes[i].set == nil {
			return bad
		}
	}
	return nil
}

// setOf categories, in at most so many words.
func setOf(categories []int64, room int) ([]uint32, error) {
	most := int64(0)
	for _, c := range categories {
		if c < 0 || c >= xgboostCategories {
			return nil, faultError("a category out of range")
		}
		most = max(most, c)
	}
	words := int(most>>5) + 1
	if words > room {
		return nil, faultError("too many categories")
	}
	set := make([]uint32, words)
	for _, c := range categories {
		set[c>>5] |= 1 << (c & 31)
	}
	return set, nil
}
