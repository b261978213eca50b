package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	// replaySlice is how many messages one track that is behind gets at most before the others have
	// their turn.
	replaySlice = 64
	// readAgain is when a failed read is tried again.
	readAgain = 500 * time.Millisecond
	// fewAfter is when a window with less than half of its room is read for after all: its client
	// may wait for the rest before it ACKs.
	fewAfter = 100 * time.Millisecond
	// pinnedRanges is how many ranges may wait, read already, for a window to open; beyond, they
	// are read again.
	pinnedRanges = 1024
)

// run puts a track that is behind in line.
func (h *Hub) run(t *track) {
	h.lags(t)
	if !t.runs && !t.held && !t.told {
		t.runs = true
		h.runnable.push(runner{t: t.ref()})
	}
}

// replaySlice lets the next track in line go on, and says how much it did.
func (h *Hub) replaySlice() int {
	if h.paced() {
		return 0
	}
	r, ok := h.runnable.pop()
	if !ok {
		return 0
	}
	if r.g != nil {
		return 1 + h.handGroup(r.g, h.turnOf(r.g.c, r.g.ack))
	}
	t := r.t.get()
	if t == nil {
		return 1
	}
	t.runs = false
	if !t.behind || t.reading || t.told || t.c.draining || t.c.state != stateOpen {
		return 1
	}
	if t.rank != nil {
		n := h.goOnRanked(t)
		h.replayed += n
		return 1 + n
	}
	if t.rng == nil {
		h.ask(t)
		return 1
	}
	n := h.handOn(t)
	h.replayed += n
	return 1 + n
}

// ask reads on from the log, when windows and queue have room and no other track waits for the
// same.
func (h *Hub) ask(t *track) {
	if t.retryAt > h.now && !t.few {
		return
	}
	room, enough := h.roomToRead(t)
	if !room || !enough && !t.waited() {
		h.waitFor(t)
		switch {
		case room:
			h.readFewSoon(t)
		case !t.few:
			// whoever waits for little room keeps its place: others may use up each bit of it at
			// once
			h.noRetry(t)
		}
		return
	}
	if enough {
		h.noRetry(t)
	}
	from, size := t.pos+1, h.lim.ReadBytes
	if t.rank != nil {
		size = max(size, rankReadBytes)
		if next, left := t.rank.order.next(); left {
			from = next.seq
		}
	}
	h.read(t, from, size)
}

// waited says that the track goes on, with whatever room its window has, until that is full.
func (t *track) waited() bool { return t.few && t.retryAt == 0 }

// roomToRead reports whether there is room for a message that is behind, and whether there is
// enough for reading on to be worth it: half of a window.
func (h *Hub) roomToRead(t *track) (room, enough bool) {
	c := t.c
	room, enough = h.drained(c) && h.near(t, t.pos+1), true
	if t.ack {
		left := c.window - min(c.window, c.unacked)
		room, enough = room && left > 0, left >= max(1, c.window/2)
		if w := uint32(t.window); w > 0 {
			left = w - min(w, t.unacked)
			room, enough = room && left > 0, enough && left >= max(1, w/2)
		}
	}
	return room, enough
}

// ranged takes a range that was read, for all who wait for it.
func (h *Hub) ranged(e *exchange.Range) {
	ts := h.topics.Get(e.Topic)
	if ts == nil || ts.reads == nil {
		return
	}
	waiting := ts.reads.from[e.From]
	delete(ts.reads.from, e.From)
	if len(ts.reads.from) == 0 {
		h.reads.Give(ts.reads)
		ts.reads = nil
	}
	if len(waiting) > 0 {
		h.jobs.push(&arrival{e: e, waiting: waiting})
	}
}

// arrival gives a range to those who wait for it, some at a time.
type arrival struct {
	e       *exchange.Range
	waiting []trackRef
	ranking *ranking // of those that are ranked; nil: none is
}

func (j *arrival) step(h *Hub) bool {
	for n := 0; n < fanSlice && len(j.waiting) > 0; n += 1 + h.toll() {
		if t := j.waiting[0].get(); t != nil {
			h.arrived(t, j)
		}
		j.waiting = j.waiting[1:]
	}
	if len(j.waiting) > 0 {
		return false
	}
	if j.ranking != nil {
		h.rankNow(j.ranking)
	}
	return true
}

func (h *Hub) arrived(t *track, j *arrival) {
	e := j.e
	t.reading = false
	if t.trackMore.first != 0 {
		h.firstArrived(t, e)
		return
	}
	h.trackless(t)
	if !t.behind {
		return
	}
	if e.Err != nil && code.Of(e.Err) != wirev1.Code_CODE_EPOCH_CHANGED || e.Epoch < t.epoch {
		h.readLater(t)
		return
	}
	switch {
	case t.epoch == 0:
		h.learnEpoch(t, e.Epoch)
	case t.told && e.Epoch > t.epoch:
		return // it asks again
	case e.Epoch > t.epoch:
		h.newEpoch(t, e.Epoch, 0)
		t.behind = true
	case e.Err != nil:
		h.readLater(t)
		return
	}
	if e.Err == nil && e.From <= t.pos+1 {
		if t.rank != nil && h.rankArrived(t, j) {
			return
		}
		h.hold(t, e)
	}
	h.run(t)
}

// hold has a track hand on what is in a range.
func (h *Hub) hold(t *track, e *exchange.Range) {
	h.releaseRange(t)
	more := h.trackmore(t)
	more.rng, more.rngAt = e, 0
	h.pinned++
}

// putOff has a track wait that found no room for the next message of its range.
func (h *Hub) putOff(t *track, why wirev1.Code) {
	h.waitFor(t)
	if why == wirev1.Code_CODE_MEMORY_BUDGET {
		h.readLater(t) // its own queue may be empty, so that nothing opens it
	}
	if t.c.out.IsStalled() || h.pinned > pinnedRanges {
		h.releaseRange(t)
	}
}

func (h *Hub) readLater(t *track) {
	more := h.trackmore(t)
	more.retryAt, more.few = h.now+int64(readAgain), false
	h.wheel.Sooner(t.c.slot, t.retryAt)
}

// readFewSoon has the track go on with little room in its window, unless there is more of it
// before.
func (h *Hub) readFewSoon(t *track) {
	if t.retryAt == 0 && !t.few {
		more := h.trackmore(t)
		more.few, more.retryAt = true, h.now+int64(fewAfter)
		h.wheel.Sooner(t.c.slot, more.retryAt)
	}
}

func (h *Hub) noRetry(t *track) {
	if t.retryAt != 0 || t.few {
		more := h.trackmore(t)
		more.retryAt, more.few = 0, false
		h.trackless(t)
	}
}

// handOn gives the track some of its range.
func (h *Hub) handOn(t *track) (done int) {
	for most := h.turnOf(t.c, t.ack); done < most; t.trackMore.rngAt++ {
		if t.rngAt == len(t.rng.Messages) {
			h.rangeEnds(t)
			return done
		}
		m := t.rng.Messages[t.rngAt]
		if m.Seq <= t.pos {
			continue
		}
		done++
		if m.Seq > t.pos+1 {
			h.hole(t, t.pos+1, m.Seq-1, wirev1.Code_CODE_RETENTION)
		}
		why := wirev1.Code_CODE_QUEUE_FULL
		if h.drained(t.c) {
			why = h.take(t, m)
		}
		if why == wirev1.Code_CODE_FILTERED { // the range was asked for before the filter was known
			h.releaseRange(t)
			h.readLater(t)
			h.run(t)
			return done
		}
		if why != wirev1.Code_CODE_OK {
			h.putOff(t, why)
			return done
		}
	}
	h.run(t)
	return done
}

// rangeEnds decides how it goes on behind a range: the track is level with the live stream, or
// reads again.
func (h *Hub) rangeEnds(t *track) {
	rng, ts := t.rng, t.topic
	h.releaseRange(t)
	if rng.Oldest > t.pos+1 {
		h.hole(t, t.pos+1, rng.Oldest-1, wirev1.Code_CODE_RETENTION)
	}
	head := rng.Head
	if ts.epoch == t.epoch {
		head = max(head, ts.last)
	}
	switch {
	case t.pos < head && len(rng.Messages) == 0:
		h.readLater(t) // the log is not as far as it says: don't spin
	case t.pos < head && t.rank != nil && t.rank.level && h.ranks(t):
		h.await(t)
	case t.pos < head:
		h.run(t)
	case ts.epoch > t.epoch:
		h.newEpoch(t, ts.epoch, 0)
		h.fallBehind(t)
	default:
		t.behind = false
		h.noRetry(t)
		h.stats.Resumed++
	}
}

func (h *Hub) releaseRange(t *track) {
	if t.rng != nil {
		more := h.trackmore(t)
		more.rng, more.rngAt = nil, 0
		h.pinned--
		h.trackless(t)
	}
}

// waitFor makes the track wait until a window or the queue opens.
func (h *Hub) waitFor(t *track) {
	if !t.waits {
		t.waits = true
		t.c.waiting++
	}
	h.tendFirst(t)
}

func (h *Hub) notWaiting(t *track) {
	if t.waits {
		t.waits = false
		t.c.waiting--
	}
}
