package interest

import (
	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// view is one picture of an edge's interest: the present one, or one that a snapshot builds. Its topics and
// filters stand in the table under its slot, so that replacing a picture costs no second copy of the names.
type view struct {
	edge *edge
	slot slot
	// live is false while a snapshot builds it, and again once it is replaced.
	live    bool
	version uint64
	count   uint64
	hash    uint64
	wild    map[string]struct{}
	unswept int // parts that may still hold slot, once dead
}

// staging is a snapshot on its way. Its parts come in order; one that is missing spoils it.
type staging struct {
	view  *view
	parts uint32
	next  uint32
}

func (t *Table) newView(e *edge, version uint64) *view {
	v := &view{edge: e, version: version}
	for s := 1; s < len(t.views); s++ {
		if t.views[s] == nil {
			v.slot = slot(s)
			t.views[s] = v
			return v
		}
	}
	if len(t.views) == 0 {
		t.views = append(t.views, nil) // slot 0 is none
	}
	if len(t.views) > maxSlots {
		return nil
	}
	v.slot = slot(len(t.views))
	t.views = append(t.views, v)
	return v
}

func (t *Table) add(v *view, filter string) {
	if !t.put(v, filter) {
		return
	}
	v.count++
	v.hash += xxhash.Sum64String(filter)
}

func (t *Table) put(v *view, filter string) bool {
	if !wild(filter) {
		return t.topics.add(filter, v.slot)
	}
	if !t.wild.Add(filter, v.slot) {
		return false
	}
	if v.wild == nil {
		v.wild = map[string]struct{}{}
	}
	v.wild[filter] = struct{}{}
	return true
}

func (t *Table) remove(v *view, filter string) {
	if wild(filter) {
		if !t.wild.Remove(filter, v.slot) {
			return
		}
		delete(v.wild, filter)
	} else if !t.topics.remove(filter, v.slot) {
		return
	}
	v.count--
	v.hash -= xxhash.Sum64String(filter)
}

// wild says whether filter belongs in the index of wildcards. What is no valid filter is kept like a topic: it matches
// nothing that is published, and the edge's digest still agrees.
func wild(filter string) bool { return topic.IsFilter(filter) && topic.CheckFilter(filter) == nil }

func (t *Table) apply(v *view, a *meshv1.EdgeAnnounce) {
	for _, f := range a.GetRemove() {
		t.remove(v, f)
	}
	for _, f := range a.GetAdd() {
		t.add(v, f)
	}
	v.version = a.GetVersion()
}

// retire makes v dead: it matches nothing from now on, and Sweep frees its entries.
func (t *Table) retire(v *view) {
	if v == nil {
		return
	}
	v.live = false
	for f := range v.wild {
		t.wild.Remove(f, v.slot)
	}
	v.wild = nil
	v.unswept = parts
	t.dead = append(t.dead, v)
}

// Sweep frees one part's entries of edges that are gone; false where nothing is left to do. It is apart from Tick, so that lookups can go in
// between: with ten million topics a part takes milliseconds.
func (t *Table) Sweep() bool {
	if len(t.dead) == 0 {
		return false
	}
	t.topics.sweep(t.swept, func(s slot) bool { return t.views[s].unswept > 0 })
	t.swept = (t.swept + 1) % parts
	kept := t.dead[:0]
	for _, v := range t.dead {
		if v.unswept--; v.unswept > 0 {
			kept = append(kept, v)
			continue
		}
		t.views[v.slot] = nil
	}
	clear(t.dead[len(kept):])
	t.dead = kept
	return len(kept) > 0
}
