package topic

// Index finds the values of all filters that match a topic. The cost of a match grows with the
// topic's levels and the filters that match, not with the filters held. It is not safe for
// concurrent use.
type Index[V comparable] struct {
	root node[V]
	n    int
}

type node[V comparable] struct {
	children map[string]*node[V]
	values   []V // of the filter that ends here
	rest     []V // of the filter that goes on with a last "#"
}

// Len is the number of (filter, value) pairs held.
func (x *Index[V]) Len() int { return x.n }

// Add adds v under filter; false where it is there already. The filter must be valid.
func (x *Index[V]) Add(filter string, v V) bool {
	nd := &x.root
	for rest, last := filter, false; !last; {
		var level string
		level, rest, last = cut(rest)
		if level == "#" {
			return x.put(&nd.rest, v)
		}
		next := nd.children[level]
		if next == nil {
			if nd.children == nil {
				nd.children = map[string]*node[V]{}
			}
			next = &node[V]{}
			nd.children[level] = next
		}
		nd = next
	}
	return x.put(&nd.values, v)
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
func (x *Index[V]) Remove(filter string, v V) bool {
	ok, _ := x.remove(&x.root, filter, v)
	return ok
}

func (x *Index[V]) remove(nd *node[V], filter string, v V) (removed, empty bool) {
	level, rest, last := cut(filter)
	if level == "#" {
		return x.take(&nd.rest, v), nd.empty()
	}
	next := nd.children[level]
	if next == nil {
		return false, false
	}
	if last {
		removed, empty = x.take(&next.values, v), next.empty()
	} else {
		removed, empty = x.remove(next, rest, v)
	}
	if empty {
		delete(nd.children, level)
	}
	return removed, nd.empty()
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

func (nd *node[V]) empty() bool {
	return len(nd.children) == 0 && len(nd.values) == 0 && len(nd.rest) == 0
}

// Match appends to dst the values of every filter that matches topic. A value held under
// several matching filters is appended once for each.
func (x *Index[V]) Match(dst []V, topic string) []V {
	return x.root.match(dst, topic, topic[0] == '$')
}

func (nd *node[V]) match(dst []V, topic string, own bool) []V {
	if !own {
		dst = append(dst, nd.rest...)
	}
	level, rest, last := cut(topic)
	if next := nd.children[level]; next != nil {
		dst = next.follow(dst, rest, last)
	}
	if !own {
		if next := nd.children["+"]; next != nil {
			dst = next.follow(dst, rest, last)
		}
	}
	return dst
}

func (nd *node[V]) follow(dst []V, rest string, last bool) []V {
	if last {
		return append(append(dst, nd.values...), nd.rest...)
	}
	return nd.match(dst, rest, false)
}
