package starts

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Place is where a subscription begins in one topic: behind Pos. Missed messages were asked for and
// can't be had. T names a position of the connection.
type Place[T any] struct {
	Head   exchange.Head
	Pos    uint64
	Cursor *cursor.Cursor // of the session; nil: it is not one's
	Fresh  bool           // Cursor is not stored yet
	Shared T              // the position that the subscription will share; zero: none

	recovered bool
	last      bool // it begins before what the topic keeps, and is told this place for the head
	missed    uint64
}

// point is where to begin in a log.
type point struct {
	pos       uint64
	recovered bool
	last      bool
	missed    uint64
}

// after is behind a position that the client has.
func after(head exchange.Head, epoch, seq uint64) point {
	begin := head.Oldest - 1
	switch {
	case epoch != 0 && epoch != head.Epoch:
		// That log is gone. What the present one still has comes after the position.
		return point{pos: begin, missed: begin}
	case seq > head.Head:
		// The log was rewound: what it has now is not what the client had under these numbers.
		return point{pos: begin, missed: begin}
	case seq < begin:
		return point{pos: begin, missed: begin - seq}
	}
	return point{pos: seq, recovered: true}
}

// in is where the subscription begins in the topic of head, where no session says so.
func (st *Start) in(head exchange.Head) point {
	if p := st.byTopic[head.Topic]; p != nil {
		// whatever the start says of topics that are not named
		return after(head, p.GetEpoch(), p.GetSeq())
	}
	switch st.Mode {
	case wirev1.Start_START_EARLIEST:
		return point{pos: head.Oldest - 1, recovered: true}
	case wirev1.Start_START_LAST_N:
		pos := head.Head - min(head.Head, st.Seq)
		return point{pos: max(pos, head.Oldest-1), recovered: true}
	case wirev1.Start_START_AFTER_SEQ:
		if !st.wildcard && len(st.Positions) == 0 {
			return after(head, st.Epoch, st.Seq)
		}
	}
	return st.live(head)
}

// resume is where a session goes on that has a cursor in the topic, and with which cursor.
func resume(head exchange.Head, cur *cursor.Cursor) (point, *cursor.Cursor) {
	p := after(head, cur.Epoch, cur.Floor)
	if cur.Epoch != head.Epoch || cur.Floor > head.Head {
		return p, &cursor.Cursor{Epoch: head.Epoch, Floor: p.pos}
	}
	if p.missed > 0 {
		p.missed = cur.Missing(cur.Floor+1, head.Oldest-1)
		cur.Settle(cur.Floor+1, head.Oldest-1)
		p.pos, p.recovered = cur.Floor, p.missed == 0
	}
	return p, cur
}
