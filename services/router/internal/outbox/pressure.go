package outbox

import "sync/atomic"

// total is what waits in all queues together.
type total struct {
	most       int64        // bytes
	waiting    atomic.Int64 // bytes
	broadcasts atomic.Int64 // those of them that are for everyone
	room       atomic.Int64 // bytes that may wait for the edges that there are
}

func (t *total) full(more int) bool { return t.waiting.Load()+int64(more) > t.most }

// weigh notes that more or fewer bytes wait. q.mu is held.
func (q *Queue) weigh(change int) {
	q.bytes += change
	q.total.waiting.Add(int64(change))
	if q.mirror != nil {
		q.mirror.Store(int64(q.bytes))
	}
}

// measure says how much may wait for the edges that there are. o.mu is held.
func (o *Outbox) measure() {
	o.total.room.Store(min(int64(len(o.queues))*int64(o.cfg.QueueBytes), o.total.most))
}

// Admits reports whether a message of a priority may be sent to edges, or is to be refused because
// too much waits for all of them together, or to be broadcast. One slow edge alone refuses nothing:
// its deliveries become holes. The pressure is 0 where nothing waits and 1 where all that may. It
// takes no lock.
func (o *Outbox) Admits(priority uint32) (pressure float64, ok bool) {
	if room := o.total.room.Load(); room > 0 {
		pressure = max(float64(o.total.waiting.Load())/float64(room), float64(o.total.broadcasts.Load())/float64(o.cfg.QueueBytes))
	}
	return pressure, o.gate.Admits(pressure, priority)
}
