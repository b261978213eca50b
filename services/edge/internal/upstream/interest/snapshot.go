package interest

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// snapshotPart is the most bytes of filters in a part of a snapshot.
const snapshotPart = 256 << 10

// filtersField is the number of filters in meshv1.EdgeSnapshot.
const filtersField = 6

// Snapshot is everything that was announced when it began, a part at a time, while the table goes
// on changing. What was announced since may be missing and what was taken back may be missing too:
// whoever reads a snapshot of version v applies the announcements after v to it, and has the same
// as who applied all of them. It ends with the table, or with whoever holds it.
type Snapshot struct {
	table       *Table
	version     uint64
	part, parts int
	begun       bool // the part has its head
	room        int  // bytes for more filters of it
	// A filter keeps its place, so that one which is there all the time is met once. Who took over
	// the place of another was announced later.
	at, end uint32
}

// Snapshot begins one.
func (t *Table) Snapshot() *Snapshot {
	return &Snapshot{
		table: t, version: t.version, end: t.slab.end,
		// none but the last is emptier
		parts: t.bytes/(snapshotPart-topic.MaxLen-filterOverhead) + 1,
	}
}

// Next appends what follows of the next part to dst, as an encoded meshv1.EdgeSnapshot, and looks
// at most places of the table for it. whole says that this was the end of the part. There is at
// least one part, and there are none after Last.
func (s *Snapshot) Next(dst []byte, most int) (part []byte, whole bool) {
	if !s.begun {
		var err error
		dst, err = proto.MarshalOptions{}.MarshalAppend(dst, &meshv1.EdgeSnapshot{
			EdgeId: s.table.edge, EdgeIncarnation: s.table.incarnation, Version: s.version, Part: uint32(s.part), Parts: uint32(s.parts),
		})
		if err != nil { // the name of the edge is no text: nobody takes it
			s.part = s.parts
			return dst, true
		}
		s.begun, s.room = true, snapshotPart
	}
	// The filters by hand: protobuf would walk over the names twice, and they are not in the
	// processor's caches.
	for ; s.at < min(s.end, s.table.slab.end); s.at++ {
		if most--; most < 0 {
			return dst, false
		}
		f := s.table.slab.at(s.at)
		if f.announced == 0 || f.announced > s.version {
			continue
		}
		if s.room < len(f.name)+filterOverhead {
			break
		}
		s.room -= len(f.name) + filterOverhead
		dst = protowire.AppendTag(dst, filtersField, protowire.BytesType)
		dst = protowire.AppendString(dst, f.name)
	}
	s.begun = false
	s.part++
	return dst, true
}

// Last says that no part comes any more.
func (s *Snapshot) Last() bool { return s.part == s.parts }
