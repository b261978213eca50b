package interest

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// wild maps filters with wildcards to the slots that want them: a tree by levels, whose nodes and
// the table that finds a node's child have no pointers in them. Changes are serialised by the
// caller; matches may run beside them, and wait for one change at most.
type wild struct {
	mu     sync.RWMutex
	chunks [][]node // by id; node 0 is the root
	made   uint32   // ids given so far
	free   uint32   // a free node, chained by parent; 0: none
	index  [wildParts]wildPart
	sets   sets
	by     []uint32     // filters by slot
	held   atomic.Int64 // pairs of a filter and a slot
}

const chunkNodes = 1 << 12

// node is a level of filters, below what leads to it.
type node struct {
	level  level
	parent uint32
	plus   uint32  // the child "+"; 0: none
	exact  uint32  // other children
	values members // of the filter that ends here
	rest   members // of the filter that goes on with a last "#"
}

// level stands for the text of one, as key does for names.
type level struct {
	keyed uint64
	sum   uint32
}

func levelOf(text string) level {
	return level{maphash.String(seed, text), uint32(xxhash.Sum64String(text))}
}

// A match that met maxVisits nodes of the tree takes every edge with wildcards instead of going on:
// a topic of n levels can meet 2ⁿ where someone made filters for it. Filters in use meet a few
// dozen.
const maxVisits = 512

func (w *wild) at(id uint32) *node { return &w.chunks[id/chunkNodes][id%chunkNodes] }

func (w *wild) make(parent uint32) uint32 {
	id := w.free
	if id != 0 {
		w.free = w.at(id).parent
	} else {
		id = w.made
		w.made++
		if id%chunkNodes == 0 {
			w.chunks = append(w.chunks, make([]node, chunkNodes))
		}
	}
	*w.at(id) = node{parent: parent}
	return id
}

// add puts s to filter; false where it was there. The filter is valid.
func (w *wild) add(filter string, s slot) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made == 0 {
		w.make(0)
	}
	id, end := uint32(0), false
	for rest, last := filter, false; !last && !end; {
		var text string
		text, rest, last = cut(rest)
		switch text {
		case "#":
			end = true
		default:
			id = w.grow(id, text)
		}
	}
	to := &w.at(id).values
	if end {
		to = &w.at(id).rest
	}
	next, ok := w.sets.with(*to, s)
	*to = next
	if ok {
		w.held.Add(1)
		for len(w.by) <= int(s) {
			w.by = append(w.by, 0)
		}
		w.by[s]++
	}
	return ok
}

func cut(s string) (text, rest string, last bool) {
	text, rest, found := strings.Cut(s, "/")
	return text, rest, !found
}

// grow is the child of a node, made if need be.
func (w *wild) grow(id uint32, text string) uint32 {
	if text == "+" {
		child := w.at(id).plus
		if child == 0 {
			child = w.make(id)
			w.at(id).plus = child
		}
		return child
	}
	l := levelOf(text)
	child := w.child(id, l)
	if child == 0 {
		child = w.make(id)
		w.at(child).level = l
		w.at(id).exact++
		w.index[partOf(id, l)].put(mix(id, l), child)
	}
	return child
}

// find is the node where a filter ends or goes on with "#"; 0 where there is none.
func (w *wild) find(filter string) (id uint32, rest, ok bool) {
	if w.made == 0 {
		return 0, false, false
	}
	for left, last := filter, false; !last; {
		var text string
		text, left, last = cut(left)
		switch text {
		case "#":
			return id, true, true
		case "+":
			id = w.at(id).plus
		default:
			id = w.child(id, levelOf(text))
		}
		if id == 0 {
			return 0, false, false
		}
	}
	return id, false, true
}

// remove takes s from filter; false where it was not there.
func (w *wild) remove(filter string, s slot) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, rest, ok := w.find(filter)
	if !ok {
		return false
	}
	from := &w.at(id).values
	if rest {
		from = &w.at(id).rest
	}
	next, n := w.sets.without(*from, func(x slot) bool { return x == s })
	*from = next
	if n == 0 {
		return false
	}
	w.held.Add(-1)
	w.by[s]--
	w.prune(id)
	return true
}

// prune frees a node that holds nothing any more, and those above it that held nothing else.
func (w *wild) prune(id uint32) {
	for id != 0 {
		n := w.at(id)
		if n.values != 0 || n.rest != 0 || n.plus != 0 || n.exact != 0 {
			return
		}
		up := n.parent
		if parent := w.at(up); parent.plus == id {
			parent.plus = 0
		} else {
			parent.exact--
			w.index[partOf(up, n.level)].drop(mix(up, n.level), id)
		}
		*n = node{parent: w.free}
		w.free = id
		id = up
	}
}

// gone says that a slot's filters count no more; sweep frees them.
func (w *wild) gone(s slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if int(s) < len(w.by) {
		w.by[s] = 0
	}
}

// sweep takes the slots that gone names from one part of the nodes.
func (w *wild) sweep(part int, gone func(slot) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := uint32(part); id < w.made; id += parts {
		n := w.at(id)
		if n.values == 0 && n.rest == 0 {
			continue
		}
		var values, rest int
		n.values, values = w.sets.without(n.values, gone)
		n.rest, rest = w.sets.without(n.rest, gone)
		if values+rest > 0 {
			w.held.Add(-int64(values + rest))
			w.prune(id)
		}
	}
}

// fronts are the nodes of one level, and of the next, that a match is at.
var fronts = sync.Pool{New: func() any { return new([2][2 * maxVisits]uint32) }}

// match gathers the slots of every filter that matches topic.
func (w *wild) match(g *gathering, topic string) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.made == 0 {
		return
	}
	buf := fronts.Get().(*[2][2 * maxVisits]uint32)
	defer fronts.Put(buf)
	at, below := append(buf[0][:0], 0), buf[1][:0] // the root
	visits := 0
	for rest, last, own := topic, false, topic[0] == '$'; !last && len(at) > 0; own = false {
		var text string
		text, rest, last = cut(rest)
		l := levelOf(text)
		if visits += len(at); visits > maxVisits {
			w.all(g)
			return
		}
		for _, id := range at {
			n := w.at(id)
			if !own {
				g.take(&w.sets, n.rest)
				if n.plus != 0 {
					below = append(below, n.plus)
				}
			}
			if n.exact > 0 {
				if child := w.child(id, l); child != 0 {
					below = append(below, child)
				}
			}
		}
		at, below = below, at[:0]
	}
	for _, id := range at {
		n := w.at(id)
		g.take(&w.sets, n.values)
		g.take(&w.sets, n.rest)
	}
}

// all gathers every slot with a filter.
func (w *wild) all(g *gathering) {
	for s, n := range w.by {
		if n > 0 {
			g.add(slot(s))
		}
	}
}
