package interest

import (
	"reflect"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// snapshotPart is the most bytes of filters in a part of a snapshot: little enough to be put together in a millisecond or two.
const snapshotPart = 256 << 10

// Snapshot is everything that was announced when it began, a part at a time, while the table goes on changing. What was announced since may be missing
// and what was taken back may be missing too: whoever reads a snapshot of version v applies the announcements after v to it, and has the same as who
// applied all of them. It ends with the table, or with whoever holds it.
type Snapshot struct {
	table       *Table
	version     uint64
	part, parts int
	// A walk over a map may go on where it stopped, after the map changed: what is in it all the time is met once. Only reflect
	// can stop in between.
	walk *reflect.MapIter
	name reflect.Value
	of   reflect.Value
	left string // the name that did not fit into the part before
}

// Snapshot begins one.
func (t *Table) Snapshot() *Snapshot {
	return &Snapshot{
		table: t, version: t.version,
		parts: t.bytes/(snapshotPart-topic.MaxLen-filterOverhead) + 1, // none but the last is emptier
		walk:  reflect.ValueOf(t.filters).MapRange(),
		name:  reflect.New(reflect.TypeFor[string]()).Elem(),
		of:    reflect.New(reflect.TypeFor[*filter]()).Elem(),
	}
}

// Next is the next part; nil after the last. There is at least one.
func (s *Snapshot) Next() *meshv1.EdgeSnapshot {
	if s.part == s.parts {
		return nil
	}
	p := &meshv1.EdgeSnapshot{
		EdgeId: s.table.edge, EdgeIncarnation: s.table.incarnation, Version: s.version, Part: uint32(s.part), Parts: uint32(s.parts),
	}
	s.part++
	size := 0
	for {
		name, ok := s.next()
		if !ok {
			return p
		}
		if size += len(name) + filterOverhead; size > snapshotPart {
			s.left = name
			return p
		}
		p.Filters = append(p.Filters, name)
	}
}

// Last says that no part comes any more.
func (s *Snapshot) Last() bool { return s.part == s.parts }

// next is another filter that was announced when the snapshot began.
func (s *Snapshot) next() (name string, ok bool) {
	if s.left != "" {
		name, s.left = s.left, ""
		return name, true
	}
	for s.walk != nil {
		if !s.walk.Next() {
			s.walk = nil
			break
		}
		s.of.SetIterValue(s.walk)
		if e, _ := reflect.TypeAssert[*filter](s.of); e.announced != 0 && e.announced <= s.version {
			s.name.SetIterKey(s.walk)
			return s.name.String(), true
		}
	}
	return "", false
}
