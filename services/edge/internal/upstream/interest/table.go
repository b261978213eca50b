// Package interest counts what the loops of an edge want, and says what routers have to be told
// about it. It does no I/O: joins, leaves and the time are put in; announcements, digests and
// snapshots come out.
package interest

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Coalesce is how long a change may wait for others to be announced with it.
const Coalesce = 2 * time.Millisecond

// changesAtATime is how many changes one announcement is made of at most: little enough to be put
// together in a quarter of a millisecond, and with names of 255 bytes a quarter of what NATS takes.
const changesAtATime = 1024

// filterOverhead is what protobuf adds to a filter of at most 255 bytes: a tag and two bytes of
// length.
const filterOverhead = 3

// Table of an edge's interest. It is not safe for concurrent use.
type Table struct {
	edge        string
	incarnation uint64

	index map[string]uint32 // where a filter stands
	slab  slab
	dirty []uint32 // changed since they were announced, in order
	told  int      // how many of these were announced
	since time.Time
	past  uint64 // changes that were announced and are not among dirty any more

	// What was announced so far.
	version uint64
	count   uint64
	hash    uint64
	bytes   int // of a snapshot
}

// filter stands in its place as long as it has joins, or until its end was announced.
type filter struct {
	name      string
	announced uint64   // version of the announcement that added it; 0: not announced
	joins     []uint32 // by loop
	total     int32
	dirty     bool
}

// New makes an empty table for an edge with a number of loops.
func New(edge string, incarnation uint64) *Table {
	return &Table{edge: edge, incarnation: incarnation, index: map[string]uint32{}}
}

// Join counts a join of f by loop; first says that the loop had none.
func (t *Table) Join(now time.Time, loop int, f string) (first bool) {
	i, ok := t.index[f]
	if !ok {
		i = t.slab.take()
		t.slab.at(i).name = f
		t.index[f] = i
	}
	e := t.slab.at(i)
	for len(e.joins) <= loop {
		e.joins = append(e.joins, 0)
	}
	e.joins[loop]++
	e.total++
	if e.total == 1 {
		t.changed(now, i, e)
	}
	return e.joins[loop] == 1
}

// Leave ends a join of f by loop; last says that the loop has none left. Without a join nothing
// happens.
func (t *Table) Leave(now time.Time, loop int, f string) (last bool) {
	i, ok := t.index[f]
	if !ok {
		return false
	}
	e := t.slab.at(i)
	if loop >= len(e.joins) || e.joins[loop] == 0 {
		return false
	}
	e.joins[loop]--
	e.total--
	if e.total == 0 {
		t.changed(now, i, e)
	}
	return e.joins[loop] == 0
}

func (t *Table) changed(now time.Time, i uint32, e *filter) {
	if e.dirty {
		return
	}
	if len(t.dirty) == t.told {
		t.since = now
	}
	e.dirty = true
	t.dirty = append(t.dirty, i)
}

// Due is when Announce must be called; false where nothing changed.
func (t *Table) Due() (time.Time, bool) { return t.since.Add(Coalesce), len(t.dirty) > t.told }

// Changes is how many changes there were so far, and Told how many of them, the first ones, were
// announced.
func (t *Table) Changes() uint64 { return t.past + uint64(len(t.dirty)) }

// Told belongs to Changes.
func (t *Table) Told() uint64 { return t.past + uint64(t.told) }

// Announce makes an announcement of the oldest changes, and leaves the others for the next call;
// nil where these came to nothing. Between two calls anything may change: the table's version, its
// digest and its snapshots are of what was announced.
func (t *Table) Announce() *meshv1.EdgeAnnounce {
	var a *meshv1.EdgeAnnounce
	end := min(t.told+changesAtATime, len(t.dirty))
	for ; t.told < end; t.told++ {
		i := t.dirty[t.told]
		e := t.slab.at(i)
		e.dirty = false
		add := e.total > 0
		if add == (e.announced > 0) { // it came and went within the window
			t.forget(i, e)
			continue
		}
		if a == nil {
			t.version++
			a = &meshv1.EdgeAnnounce{EdgeId: t.edge, EdgeIncarnation: t.incarnation, Version: t.version}
		}
		t.announce(a, i, e, add)
	}
	t.trim()
	return a
}

// trim lets go of changes that were announced, once these are half of all.
func (t *Table) trim() {
	if t.told < len(t.dirty)-t.told {
		return
	}
	t.past += uint64(t.told)
	t.dirty, t.told = slices.Delete(t.dirty, 0, t.told), 0
	if len(t.dirty) == 0 && cap(t.dirty) > 1<<16 {
		t.dirty = nil
	}
}

func (t *Table) announce(to *meshv1.EdgeAnnounce, i uint32, e *filter, add bool) {
	if add {
		to.Add = append(to.Add, e.name)
		e.announced = to.GetVersion()
		t.count++
		t.bytes += len(e.name) + filterOverhead
		t.hash += xxhash.Sum64String(e.name)
		return
	}
	to.Remove = append(to.Remove, e.name)
	t.count--
	t.bytes -= len(e.name) + filterOverhead
	t.hash -= xxhash.Sum64String(e.name)
	t.forget(i, e)
}

func (t *Table) forget(i uint32, e *filter) {
	if e.total == 0 {
		delete(t.index, e.name)
		t.slab.free(i)
	}
}

// Announced is the version that routers must have applied to know f; 0 where it was not announced
// yet.
func (t *Table) Announced(f string) uint64 {
	if i, ok := t.index[f]; ok {
		return t.slab.at(i).announced
	}
	return 0
}

// Some calls found with the topics and filters that loops want, from place at on, and looks at most
// places. It returns where to go on, and false after the last. The first place is 0. What is wanted
// all the time is found once; of what comes or goes meanwhile nothing is said.
func (t *Table) Some(at uint32, most int, found func(name string)) (next uint32, more bool) {
	for end := t.slab.end; at < end && most > 0; at++ {
		if e := t.slab.at(at); e.total > 0 {
			found(e.name)
		}
		most--
	}
	return at, at < t.slab.end
}

// Version of the last announcement.
func (t *Table) Version() uint64 { return t.version }

// Len is the number of topics and filters announced.
func (t *Table) Len() int { return int(t.count) }

// Digest of what was announced.
func (t *Table) Digest() *meshv1.EdgeDigest {
	return &meshv1.EdgeDigest{EdgeId: t.edge, EdgeIncarnation: t.incarnation, Version: t.version, Count: t.count, Hash: t.hash}
}
