package interest

import (
	"strings"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// view is one picture of an edge's interest: the present one, or one that a snapshot builds. Its
// topics and filters stand in the table under its slot, so that replacing a picture costs no second
// copy of the names.
type view struct {
	slot    slot
	version uint64
	count   uint64
	hash    uint64
	unswept int // parts that may still hold slot, once dead
	events  eventFilters
}

// staging is a snapshot on its way. Its parts come in order; one that is missing spoils it.
type staging struct {
	view  *view
	parts uint32
	next  uint32
}

func (t *Table) newView(version uint64) *view {
	v := &view{version: version}
	for s := 1; s < len(t.views); s++ {
		if t.views[s] == nil {
			v.slot = slot(s)
			t.views[s] = v
			t.live.room(v.slot)
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
	t.live.room(v.slot)
	return v
}

func (t *Table) add(v *view, filter string) {
	k := keyOf(filter)
	if wildcard(filter) {
		if !t.wild.add(filter, v.slot) {
			return
		}
	} else if !t.topics.add(k, v.slot) {
		return
	}
	v.count++
	v.events.note(filter, 1)
	v.hash += k.sum
}

func (t *Table) remove(v *view, filter string) {
	k := keyOf(filter)
	if wildcard(filter) {
		if !t.wild.remove(filter, v.slot) {
			return
		}
	} else if !t.topics.remove(k, v.slot) {
		return
	}
	v.count--
	v.events.note(filter, -1)
	v.hash -= k.sum
}

// wildcard reports whether filter belongs in the index of wildcards. What is no valid filter is
// kept like a topic: it matches nothing that is published, and the edge's digest still agrees.
func wildcard(filter string) bool {
	return (strings.IndexByte(filter, '+') >= 0 || strings.IndexByte(filter, '#') >= 0) && topic.CheckFilter(filter) == nil
}

func (t *Table) apply(v *view, a *meshv1.EdgeAnnounce) {
	for _, f := range a.GetRemove() {
		t.remove(v, f)
	}
	for _, f := range a.GetAdd() {
		t.add(v, f)
	}
	v.version = a.GetVersion()
}

// retire makes v dead: Sweep frees its entries. It is not live any more, or never was.
func (t *Table) retire(v *view) {
	t.wild.gone(v.slot)
	v.unswept = parts
	t.dead = append(t.dead, v)
}

// Sweep frees one part's entries of edges that are gone; false where nothing is left to do. It is
// apart from Tick, so that other changes can go in between: with ten million topics a part takes
// some 100 µs.
func (t *Table) Sweep() bool {
	if len(t.dead) == 0 {
		return false
	}
	gone := func(s slot) bool { return t.views[s].unswept > 0 }
	t.topics.part[t.swept].sweep(gone)
	t.wild.sweep(t.swept, gone)
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
