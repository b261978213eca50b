package edgequeue

import "sync/atomic"

// total counts what waits in all queues together.
type total struct {
	maxBytes   int64        // bytes
	waiting    atomic.Int64 // bytes
	broadcasts atomic.Int64 // those of them that are for everyone
	room       atomic.Int64 // bytes that may wait for the edges that there are
}

func (t *total) full(more int) bool { return t.waiting.Load()+int64(more) > t.maxBytes }

// addBytes notes that more or fewer bytes wait. q.mu is held.
func (q *Queue) addBytes(change int) {
	q.bytes += change
	q.total.waiting.Add(int64(change))
	if q.bytesMirror != nil {
		q.bytesMirror.Store(int64(q.bytes))
	}
}

// updateRoom computes how many bytes may wait for the edges that there are. s.mu is held.
func (s *Queues) updateRoom() {
	s.total.room.Store(min(int64(len(s.queues))*int64(s.cfg.QueueBytes), s.total.maxBytes))
}

// Admits reports whether a message of a priority may be sent to edges, or is to be refused because
// too much waits for all edges together, or to be broadcast. One slow edge alone refuses nothing:
// its deliveries become gaps. The pressure is 0 where nothing waits and 1 where the bound is
// reached. Admits takes no lock.
func (s *Queues) Admits(priority uint32) (pressure float64, ok bool) {
	if room := s.total.room.Load(); room > 0 {
		pressure = max(float64(s.total.waiting.Load())/float64(room), float64(s.total.broadcasts.Load())/float64(s.cfg.QueueBytes))
	}
	return pressure, s.gate.Admits(pressure, priority)
}
