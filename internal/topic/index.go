package topic

// Index finds the values of all filters that match a topic. The cost of a match grows with the
// levels of filters that it meets, not with the filters held: mostly a few more than the topic has,
// and MaxMet at most where every filter that is added Fits. It is not safe for concurrent use.
type Index[V comparable] struct {
	root node[V]
	n    int
}

// node is a level of filters.
type node[V comparable] struct {
	below  *below[V] // nil: no filter goes on
	values []V       // of the filter that ends here
	rest   []V       // of the filter that goes on with a last "#"
	meets  int32     // see weight.go; 0 stands for 1, the node itself
}

// below is what filters go on with.
type below[V comparable] struct {
	exact  map[string]*node[V]
	plus   *node[V] // "+"
	weighs weights  // of exact
}

// Len is the number of (filter, value) pairs held.
func (x *Index[V]) Len() int { return x.n }

// Add adds v under filter; false where it is there already. The filter must be valid.
func (x *Index[V]) Add(filter string, v V) bool { return x.add(&x.root, filter, v) }

func (x *Index[V]) add(nd *node[V], filter string, v V) (added bool) {
	level, rest, last := cut(filter)
	if level == "#" {
		return x.put(&nd.rest, v)
	}
	next, was := nd.child(level), 0
	if next == nil {
		next = nd.grow(level)
	} else {
		was = next.met()
	}
	if last {
		added = x.put(&next.values, v)
	} else {
		added = x.add(next, rest, v)
	}
	nd.weigh(level, was, next.met())
	return added
}

func (nd *node[V]) child(level string) *node[V] {
	switch {
	case nd.below == nil:
		return nil
	case level == "+":
		return nd.below.plus
	}
	return nd.below.exact[level]
}

func (nd *node[V]) grow(level string) *node[V] {
	if nd.below == nil {
		nd.below = &below[V]{}
	}
	b, next := nd.below, &node[V]{}
	switch {
	case level == "+":
		b.plus = next
	case b.exact == nil:
		b.exact = map[string]*node[V]{level: next}
	default:
		b.exact[level] = next
	}
	return next
}

func (x *Index[V]) put(vs *[]V, v V) bool {
	for _, have := range *vs {
		if have == v {
			return false
		}
	}
	*vs = append(*vs, v)
	x.n++
	return true
}

// Remove takes v from filter; false where it was not there. Empty levels are freed.
func (x *Index[V]) Remove(filter string, v V) bool { return x.remove(&x.root, filter, v) }

func (x *Index[V]) remove(nd *node[V], filter string, v V) (removed bool) {
	level, rest, last := cut(filter)
	if level == "#" {
		return x.take(&nd.rest, v)
	}
	next := nd.child(level)
	if next == nil {
		return false
	}
	was, is := next.met(), 0
	if last {
		removed = x.take(&next.values, v)
	} else {
		removed = x.remove(next, rest, v)
	}
	if next.empty() {
		nd.shed(level)
	} else {
		is = next.met()
	}
	nd.weigh(level, was, is)
	return removed
}

// shed frees an empty level.
func (nd *node[V]) shed(level string) {
	if level == "+" {
		nd.below.plus = nil
	} else {
		delete(nd.below.exact, level)
	}
}

func (x *Index[V]) take(vs *[]V, v V) bool {
	for i, have := range *vs {
		if have == v {
			last := len(*vs) - 1
			(*vs)[i] = (*vs)[last]
			var zero V
			(*vs)[last] = zero
			*vs = (*vs)[:last]
			x.n--
			return true
		}
	}
	return false
}

func (nd *node[V]) empty() bool { return nd.below == nil && len(nd.values) == 0 && len(nd.rest) == 0 }

// Match appends to dst the values of every filter that matches topic. A value held under
// several matching filters is appended once for each.
func (x *Index[V]) Match(dst []V, topic string) []V {
	return x.root.match(dst, topic, topic[0] == '$')
}

func (nd *node[V]) match(dst []V, topic string, own bool) []V {
	if !own {
		dst = append(dst, nd.rest...)
	}
	b := nd.below
	if b == nil {
		return dst
	}
	level, rest, last := cut(topic)
	if next := b.exact[level]; next != nil {
		dst = next.follow(dst, rest, last)
	}
	if b.plus != nil && !own {
		dst = b.plus.follow(dst, rest, last)
	}
	return dst
}

func (nd *node[V]) follow(dst []V, rest string, last bool) []V {
	if last {
		return append(append(dst, nd.values...), nd.rest...)
	}
	return nd.match(dst, rest, false)
}
