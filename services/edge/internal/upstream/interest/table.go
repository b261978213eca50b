// Package interest counts what the loops of an edge want, and says what routers have to be told
// about it. It does no I/O: joins, leaves and the time are put in; announcements, digests and
// snapshots come out.
package interest

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Coalesce is how long a change may wait for others to be announced with it.
const Coalesce = 2 * time.Millisecond

// maxPart is the most bytes of filters in one announcement or part of a snapshot; NATS takes twice
// that.
const maxPart = 512 << 10

// filterOverhead is what protobuf adds to a filter of at most 255 bytes: a tag and two bytes of
// length.
const filterOverhead = 3

// Table of an edge's interest. It is not safe for concurrent use.
type Table struct {
	edge        string
	incarnation uint64

	index map[string]uint32 // where a filter stands
	slab  slab
	dirty []uint32 // changed since the last announcement
	since time.Time

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
	if len(t.dirty) == 0 {
		t.since = now
	}
	e.dirty = true
	t.dirty = append(t.dirty, i)
}

// Due is when Announce must be called; false where nothing changed.
func (t *Table) Due() (time.Time, bool) { return t.since.Add(Coalesce), len(t.dirty) > 0 }

// Announce makes announcements of every change so far.
func (t *Table) Announce() []*meshv1.EdgeAnnounce {
	var all []*meshv1.EdgeAnnounce
	var last *meshv1.EdgeAnnounce
	size := 0
	for _, i := range t.dirty {
		e := t.slab.at(i)
		e.dirty = false
		add := e.total > 0
		if add == (e.announced > 0) { // it came and went within the window
			t.forget(i, e)
			continue
		}
		if size += len(e.name) + filterOverhead; last == nil || size > maxPart {
			t.version++
			last = &meshv1.EdgeAnnounce{EdgeId: t.edge, EdgeIncarnation: t.incarnation, Version: t.version}
			all = append(all, last)
			size = len(e.name) + filterOverhead
		}
		t.announce(last, i, e, add)
	}
	t.dirty = t.dirty[:0]
	if cap(t.dirty) > 1<<16 {
		t.dirty = nil
	}
	return all
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

// Version of the last announcement.
func (t *Table) Version() uint64 { return t.version }

// Len is the number of topics and filters announced.
func (t *Table) Len() int { return int(t.count) }

// Digest of what was announced.
func (t *Table) Digest() *meshv1.EdgeDigest {
	return &meshv1.EdgeDigest{EdgeId: t.edge, EdgeIncarnation: t.incarnation, Version: t.version, Count: t.count, Hash: t.hash}
}
