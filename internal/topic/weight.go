package topic

import (
	"slices"
	"strings"
)

// MaxMet is the most levels of filters, nodes of an Index's tree, that a match may meet. Without it
// a topic of n levels could meet 2ⁿ where someone made filters for it.
const MaxMet = deepMet + 1<<(shallow+1)

// Filters of so many levels fit in whatever mix: a topic meets 2⁹ - 1 of their levels at most, the
// root included. Deeper ones fit where, with all the others, that is not more than deepMet.
const (
	shallow = 8
	deepMet = 512
)

// Fits reports whether no match, of whatever topic, would meet more than MaxMet levels once filter
// is held too; so it is with every filter of up to eight levels. The filter must be valid.
//
// What a match meets at most is counted from below: a node, what lies behind its "+", and what lies
// behind the heaviest of its other levels, as a topic has one there. So filters that share no
// topics, such as those of two namespaces, do not count together.
func (x *Index[V]) Fits(filter string) bool {
	if strings.Count(filter, "/") < shallow {
		return true
	}
	is, would := x.root.met(), x.root.with(filter)
	return would == is || would <= deepMet
}

// met is the most nodes that a match meets from here on.
func (nd *node[V]) met() int { return max(int(nd.meets), 1) }

// with is what met would be with filter; nd may be nil.
func (nd *node[V]) with(filter string) int {
	level, rest, last := cut(filter)
	var next *node[V]
	is, plus, exact := 1, 0, 0
	if nd != nil {
		next, is = nd.child(level), nd.met()
		plus, exact = nd.mostBelow()
	}
	behind := 1
	switch {
	case level == "#", last && next != nil:
		return is
	case !last:
		behind = next.with(rest)
	}
	if level == "+" {
		return 1 + behind + exact
	}
	return 1 + plus + max(exact, behind)
}

// mostBelow is the most that a match meets below the level "+", and below any other level.
func (nd *node[V]) mostBelow() (plus, exact int) {
	if nd.below == nil {
		return 0, 0
	}
	if nd.below.plus != nil {
		plus = nd.below.plus.met()
	}
	return plus, nd.below.weighs.most()
}

// weigh takes in that what a match meets behind level was so much, and is so much now; 0: there is
// no such level.
func (nd *node[V]) weigh(level string, was, is int) {
	if was == is {
		return
	}
	if b := nd.below; level != "+" {
		b.weighs.change(was, is)
	}
	if b := nd.below; b.plus == nil && len(b.exact) == 0 {
		nd.below, nd.meets = nil, 0
		return
	}
	plus, exact := nd.mostBelow()
	nd.meets = int32(1 + plus + exact)
}

// weights counts children by what they weigh, the lightest first. Different weights are few: d of
// them take d²/2 nodes below.
type weights []weight

type weight struct{ of, n int32 }

func (w weights) most() int {
	if len(w) == 0 {
		return 0
	}
	return int(w[len(w)-1].of)
}

func (w *weights) change(was, is int) {
	if was > 0 {
		at, _ := w.find(was)
		if (*w)[at].n--; (*w)[at].n == 0 {
			*w = slices.Delete(*w, at, at+1)
		}
	}
	if is > 0 {
		at, there := w.find(is)
		if !there {
			*w = slices.Insert(*w, at, weight{of: int32(is)})
		}
		(*w)[at].n++
	}
}

func (w weights) find(of int) (at int, there bool) {
	return slices.BinarySearchFunc(w, int32(of), func(x weight, of int32) int { return int(x.of - of) })
}
