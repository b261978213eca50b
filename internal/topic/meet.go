package topic

// Meet calls found with the values of every filter that meets filter, which may be a topic, until
// found returns false; it reports whether it never did. Its cost grows with the levels of filters
// that begin as filter does, where filter has no wildcard; the filters held under other levels cost
// nothing. A value held under several filters is found once for each.
func (x *Index[V]) Meet(filter string, found func(V) bool) bool { return x.root.meet(filter, found) }

func (nd *node[V]) meet(filter string, found func(V) bool) bool {
	if !each(nd.rest, found) {
		return false
	}
	b := nd.below
	if b == nil {
		return true
	}
	level, rest, last := cut(filter)
	if level == "+" || level == "#" {
		for _, next := range b.exact {
			if !next.meetNext(level, rest, last, found) {
				return false
			}
		}
	} else if next := b.exact[level]; next != nil && !next.meetNext(level, rest, last, found) {
		return false
	}
	return b.plus == nil || b.plus.meetNext(level, rest, last, found)
}

// meetNext goes on with nd, which level has led to; rest and last are what follows level.
func (nd *node[V]) meetNext(level, rest string, last bool, found func(V) bool) bool {
	switch {
	case level == "#": // all that is below
		return each(nd.values, found) && nd.meet("#", found)
	case last:
		return each(nd.values, found) && each(nd.rest, found)
	case rest == "#":
		return each(nd.values, found) && nd.meet(rest, found)
	}
	return nd.meet(rest, found)
}

// each calls found with all, until it returns false; it reports whether it never did.
func each[V any](all []V, found func(V) bool) bool {
	for _, v := range all {
		if !found(v) {
			return false
		}
	}
	return true
}
