package linkhealth

import "time"

// Stats of a Watch.
type Stats struct {
	Unhealthy      int64           // links that are so now
	UnhealthyTimes uint64          // how often one became so
	Spared         [Reasons]uint64 // times that one was not closed, by why
	RTTLate        uint64          // heartbeats that told nothing, because the edge was late
	RTTQueued      uint64          // or because it had a queue
	RTT            Histogram       // what the others told

	// connections closed because their client took nothing for long
	StallCloses   uint64
	SparedStalled [Reasons]uint64 // times that one was not closed, by why
}

// Watch judges the links of one loop's connections, and says which of them are to be closed.
type Watch struct {
	mode   Mode
	gate   *Gate
	book   Book
	lateAt int64 // when the loop was late for what it had to do; 0: never
	stats  Stats
}

// NewWatch makes one; the loops of an edge share the gate.
func NewWatch(mode Mode, gate *Gate) Watch { return Watch{mode: mode, gate: gate} }

// Stats are what it has seen.
func (w *Watch) Stats() Stats {
	s := w.stats
	s.Unhealthy = int64(w.book.Unhealthy())
	return s
}

// Book of the links' records.
func (w *Watch) Book() *Book { return &w.book }

// Late says that the loop is, or was until now, so late (TooLate) that what clients and the kernel
// measure may be the edge's doing.
func (w *Watch) Late(now int64) {
	w.lateAt = now
	w.gate.Late(now)
}

// onTheWay is how long before a heartbeat's Ping is read the edge may have kept it waiting: TCP may
// have brought it while the loop did not turn.
const onTheWay = int64(time.Second)

// Heartbeat is what a client's Ping brings.
type Heartbeat struct {
	Now   int64
	Every time.Duration // the connection's heartbeat
	// round trip of the Ping before, as the client saw it, in microseconds; 0: none
	Reported uint32
	RTT      uint32 // what the kernel knows, in microseconds; 0: nothing
	Queued   bool   // the edge has more to send than its answer
}

// Heartbeat judges a link by what a Ping brings, and reports whether its connection is to be
// closed. A heartbeat through which the edge was late, or had more to send than its answer, tells
// of the edge instead and does not count.
func (w *Watch) Heartbeat(l *Link, h Heartbeat) (closes bool) {
	if w.mode == Off {
		return false
	}
	if before := l.Queued(h.Queued); h.Queued || before {
		w.stats.RTTQueued++
		return false
	}
	if w.lateAt != 0 && h.Now-w.lateAt <= int64(h.Every)+onTheWay {
		w.stats.RTTLate++
		return false
	}
	sample, v := w.book.Judge(l, h.Reported, h.RTT)
	if v == Unknown {
		return false
	}
	w.stats.RTT.Add(sample)
	if v == Turned {
		w.stats.UnhealthyTimes++
		w.gate.Turned(h.Now)
	}
	if !v.Unhealthy() {
		return false
	}
	why := Reported
	if w.mode == Close {
		why = w.gate.Close(h.Now)
	}
	if why != None {
		w.stats.Spared[why]++
	}
	return why == None
}

// Stalled reports whether a connection is to be closed whose client has taken nothing for long.
// first: it was not asked before. Many at a time are the edge's or the network's doing.
func (w *Watch) Stalled(now int64, first bool) (closes bool) {
	if first {
		w.gate.Turned(now)
	}
	if why := w.gate.Close(now); why != None {
		w.stats.SparedStalled[why]++
		return false
	}
	w.stats.StallCloses++
	return true
}
