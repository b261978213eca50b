// Package interest counts what the loops of an edge want, and says what routers have to be told about it. It does no I/O: joins, leaves and
// the time are put in; announcements, digests and snapshots come out.
package interest

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Coalesce is how long a change may wait for others to be announced with it.
const Coalesce = 2 * time.Millisecond

// maxPart is the most bytes of filters in one announcement or part of a snapshot; NATS takes twice that.
const maxPart = 512 << 10

// filterOverhead is what protobuf adds to a filter of at most 255 bytes: a tag and two bytes of length.
const filterOverhead = 3

// Table of an edge's interest. It is not safe for concurrent use.
type Table struct {
	edge        string
	incarnation uint64

	filters map[string]*filter
	dirty   []string // changed since the last announcement
	since   time.Time

	// What was announced so far.
	version uint64
	count   uint64
	hash    uint64
	bytes   int // of a snapshot
}

type filter struct {
	joins     []uint32 // by loop
	total     int
	announced uint64 // version of the announcement that added it; 0: not announced
	dirty     bool
}

// New makes an empty table for an edge with a number of loops.
func New(edge string, incarnation uint64) *Table {
	return &Table{edge: edge, incarnation: incarnation, filters: map[string]*filter{}}
}

// Join counts a join of f by loop; first says that the loop had none.
func (t *Table) Join(now time.Time, loop int, f string) (first bool) {
	e := t.filters[f]
	if e == nil {
		e = &filter{}
		t.filters[f] = e
	}
	for len(e.joins) <= loop {
		e.joins = append(e.joins, 0)
	}
	e.joins[loop]++
	e.total++
	if e.total == 1 {
		t.changed(now, f, e)
	}
	return e.joins[loop] == 1
}

// Leave ends a join of f by loop; last says that the loop has none left. Without a join nothing happens.
func (t *Table) Leave(now time.Time, loop int, f string) (last bool) {
	e := t.filters[f]
	if e == nil || loop >= len(e.joins) || e.joins[loop] == 0 {
		return false
	}
	e.joins[loop]--
	e.total--
	if e.total == 0 {
		t.changed(now, f, e)
	}
	return e.joins[loop] == 0
}

func (t *Table) changed(now time.Time, f string, e *filter) {
	if e.dirty {
		return
	}
	if len(t.dirty) == 0 {
		t.since = now
	}
	e.dirty = true
	t.dirty = append(t.dirty, f)
}

// Due is when Announce must be called; false where nothing changed.
func (t *Table) Due() (time.Time, bool) { return t.since.Add(Coalesce), len(t.dirty) > 0 }

// Announce makes announcements of every change so far.
func (t *Table) Announce() []*meshv1.EdgeAnnounce {
	var all []*meshv1.EdgeAnnounce
	var last *meshv1.EdgeAnnounce
	size := 0
	for _, f := range t.dirty {
		e := t.filters[f]
		e.dirty = false
		add := e.total > 0
		if add == (e.announced > 0) { // it came and went within the window
			t.forget(f, e)
			continue
		}
		if size += len(f) + filterOverhead; last == nil || size > maxPart {
			t.version++
			last = &meshv1.EdgeAnnounce{EdgeId: t.edge, EdgeIncarnation: t.incarnation, Version: t.version}
			all = append(all, last)
			size = len(f) + filterOverhead
		}
		t.announce(last, f, e, add)
	}
	t.dirty = t.dirty[:0]
	if cap(t.dirty) > 1<<16 {
		t.dirty = nil
	}
	return all
}

func (t *Table) announce(to *meshv1.EdgeAnnounce, f string, e *filter, add bool) {
	if add {
		to.Add = append(to.Add, f)
		e.announced = to.GetVersion()
		t.count++
		t.bytes += len(f) + filterOverhead
		t.hash += xxhash.Sum64String(f)
		return
	}
	to.Remove = append(to.Remove, f)
	e.announced = 0
	t.count--
	t.bytes -= len(f) + filterOverhead
	t.hash -= xxhash.Sum64String(f)
	t.forget(f, e)
}

func (t *Table) forget(f string, e *filter) {
	if e.total == 0 {
		delete(t.filters, f)
	}
}

// Announced is the version that routers must have applied to know f; 0 where it was not announced yet.
func (t *Table) Announced(f string) uint64 {
	if e := t.filters[f]; e != nil {
		return e.announced
	}
	return 0
}

// Version of the last announcement.
func (t *Table) Version() uint64 { return t.version }

// Len is the number of topics and filters announced.
func (t *Table) Len() int { return int(t.count) }

// Each calls f with every topic and filter that has a join.
func (t *Table) Each(f func(filter string)) {
	for name, e := range t.filters {
		if e.total > 0 {
			f(name)
		}
	}
}

// Digest of what was announced.
func (t *Table) Digest() *meshv1.EdgeDigest {
	return &meshv1.EdgeDigest{EdgeId: t.edge, EdgeIncarnation: t.incarnation, Version: t.version, Count: t.count, Hash: t.hash}
}
