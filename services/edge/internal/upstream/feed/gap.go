package feed

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// knownWithin bounds how long the messages of a topic wait for its head to be known.
const knownWithin = 3 * time.Second

// emptyReads is how often the log may answer with nothing of what was said to exist, before the
// feed goes on without it.
const emptyReads = 4

// hold keeps a message that is ahead of a hole, in order; beyond the bounds the newest is let go
// and will be read from the log.
func (f *Feed) hold(st *state, m *exchange.Message) {
	st.want = max(st.want, m.Seq)
	at, found := slices.BinarySearchFunc(st.held, m.Seq, func(h *exchange.Message, seq uint64) int {
		switch {
		case h.Seq < seq:
			return -1
		case h.Seq > seq:
			return 1
		}
		return 0
	})
	if found {
		f.stats.Duplicates.Add(1)
		return
	}
	st.held = slices.Insert(st.held, at, m)
	st.bytes += m.Size()
	for len(st.held) > f.cfg.HeldMessages || st.bytes > f.cfg.HeldBytes && len(st.held) > 1 {
		last := len(st.held) - 1
		st.bytes -= st.held[last].Size()
		st.held[last] = nil
		st.held = st.held[:last]
		f.stats.HeldDropped.Add(1)
	}
}

// release emits what is held and follows on what was emitted; what came twice is let go.
func (f *Feed) release(st *state) {
	n := 0
	for _, m := range st.held {
		if m.Seq > st.last+1 {
			break
		}
		n++
		st.bytes -= m.Size()
		if m.Seq == st.last+1 {
			f.emit(st, m)
		}
	}
	if st.held = slices.Delete(st.held, 0, n); len(st.held) == 0 {
		st.held = nil
	}
}

// settle begins to wait where there is a gap, and ends the waiting where there is none.
func (f *Feed) settle(now time.Time, st *state, wait time.Duration) {
	switch {
	case st.last >= st.want: // also where nothing is known and nothing held: both are 0
		st.gapAt, st.tries = time.Time{}, 0
	case st.reading != (Read{}), !st.gapAt.IsZero():
	default:
		if st.heldAt.IsZero() {
			st.heldAt = now
		}
		f.wait(now, st, wait)
	}
}

// wait has overdue called after d, which is one of the two durations that have a queue, or 0.
func (f *Feed) wait(now time.Time, st *state, d time.Duration) {
	if d == 0 {
		f.overdue(now, st)
		return
	}
	st.gapAt = now.Add(d)
	if d == f.cfg.Retry {
		f.retries = append(f.retries, due{st, st.gapAt})
	} else {
		f.gaps = append(f.gaps, due{st, st.gapAt})
	}
}

// expire takes what is due from a queue. Entries of topics that settled or were forgotten meanwhile
// are passed over. A topic that is still to wait is put behind the others in the same queue.
func (f *Feed) expire(now time.Time, queue *[]due) {
	for range *queue {
		d := (*queue)[0]
		if d.at.After(now) {
			return
		}
		(*queue)[0] = due{}
		*queue = (*queue)[1:]
		if d.st.gapAt.Equal(d.at) {
			d.st.gapAt = time.Time{}
			f.overdue(now, d.st)
		}
	}
}

// overdue reads the log where a hole has not been filled in time.
func (f *Feed) overdue(now time.Time, st *state) {
	if !st.known && f.covered(st.topic) {
		// the filter's topics became known while it waited, and it was not among them
		f.begin(st, 0)
		f.settle(now, st, 0)
		return
	}
	if !st.known {
		if (st.pending > 0 || len(f.basing) > 0) && now.Sub(st.heldAt) < knownWithin {
			f.wait(now, st, f.cfg.Hold)
			return
		}
		f.begin(st, st.held[0].Seq-1)
		f.settle(now, st, f.cfg.Hold)
		return
	}
	to := st.want
	if len(st.held) > 0 {
		to = st.held[0].Seq - 1
	}
	st.reading = Read{Topic: st.topic, Epoch: st.epoch, From: st.last + 1, To: to}
	f.stats.Holes.Add(1)
	f.reads = append(f.reads, st.reading)
}

// ReadDone takes the answer to a Read.
func (f *Feed) ReadDone(now time.Time, asked Read, r exchange.Range) {
	st := f.topics[asked.Topic]
	if st == nil || st.reading != asked {
		return // forgotten, and perhaps joined anew
	}
	st.reading = Read{}
	switch {
	case code.Of(r.Err) == wirev1.Code_CODE_EPOCH_CHANGED && r.Epoch > st.epoch:
		f.restart(st, r.Epoch)
		st.want, st.oldest = r.Head, r.Oldest
		f.settle(now, st, 0)
	case st.epoch != asked.Epoch:
		f.settle(now, st, 0)
	case r.Err != nil:
		f.stats.ReadErrors.Add(1)
		f.settle(now, st, f.cfg.Retry)
	default:
		f.fill(now, st, asked, r)
	}
}

// fill puts what was read into the hole.
func (f *Feed) fill(now time.Time, st *state, asked Read, r exchange.Range) {
	before := st.last
	st.oldest = r.Oldest
	for _, m := range r.Messages {
		if m.Seq > st.last {
			f.emit(st, m)
			f.stats.Repaired.Add(1)
		}
	}
	if len(r.Messages) == 0 && r.Head >= asked.To {
		f.skip(st, asked.To) // retention has it all
	}
	f.release(st)
	if st.last > before {
		st.tries = 0
		f.settle(now, st, 0)
		return
	}
	if st.tries++; st.tries < emptyReads {
		f.settle(now, st, f.cfg.Retry)
		return
	}
	// The log, asked again and again, does not have what was announced: it was rewound. Heads will
	// show its new epoch.
	f.stats.Phantoms.Add(1)
	if len(st.held) > 0 {
		f.skip(st, st.held[0].Seq-1)
		f.release(st)
	} else {
		st.want = st.last
	}
	f.settle(now, st, f.cfg.Hold)
}

// skip goes on behind a hole that can't be filled: the next message shows it to the loops.
func (f *Feed) skip(st *state, to uint64) {
	if to > st.last {
		if st.last == 0 {
			f.note(st)
		}
		st.last = to
		f.recent.drop(st)
	}
}
