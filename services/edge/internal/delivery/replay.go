package delivery

import (
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

const (
	replaySlice = replay.Slice
	// readAgain is when a failed read is tried again.
	readAgain = 500 * time.Millisecond
	// fewAfter is when a window with less than half of its room is read for after all: its client
	// may wait for the rest before it ACKs.
	fewAfter = 100 * time.Millisecond
	// pinnedRanges is how many ranges may wait, read already, for a window to open; beyond, they
	// are read again.
	pinnedRanges = 1024
)

// replayer hands on what was not sent as it came: messages of logs to tracks that are behind, and
// those that wait to members of groups, each in its turn.
type replayer struct {
	hub      *Hub
	runnable walk.FIFO[runner] // behind, and able to go on
	reads    replay.Reads[trackRef]
	pace     replay.Pace
	pinned   int // ranges held by tracks
}

// enqueue puts a track that is behind in line.
func (r *replayer) enqueue(t *track) {
	r.hub.lagging.add(t)
	if !t.runs && !t.held && !t.told {
		t.runs = true
		r.runnable.Push(runner{t: t.ref()})
	}
}

// enqueueGroup puts a member with messages that wait in line.
func (r *replayer) enqueueGroup(n *member) {
	if !n.runs {
		n.runs = true
		r.runnable.Push(runner{g: n})
	}
}

// slice lets the next track in line go on, and says how much it did.
func (r *replayer) slice() int {
	if r.pace.Exhausted(r.hub.now) {
		return 0
	}
	next, ok := r.runnable.Pop()
	if !ok {
		return 0
	}
	if g := next.g; g != nil {
		return 1 + r.hub.groups.handOn(g, r.turnOf(g.c, g.ACK))
	}
	t := next.t.get()
	if t == nil {
		return 1
	}
	t.runs = false
	if !t.behind || t.reading || t.told || t.c.draining || t.c.state != stateOpen {
		return 1
	}
	if t.rank != nil {
		n := r.hub.ranked.goOn(t)
		r.pace.Spend(n)
		return 1 + n
	}
	if t.rng == nil {
		r.ask(t)
		return 1
	}
	n := r.handOn(t)
	r.pace.Spend(n)
	return 1 + n
}

// ask reads on from the log, when windows and queue have room and no other track waits for the
// same.
func (r *replayer) ask(t *track) {
	if t.retryAt > r.hub.now && !t.few {
		return
	}
	room := r.roomToRead(t)
	if !room.Some || !room.Enough && !t.waited() {
		r.waitFor(t)
		switch {
		case room.Some:
			r.readFewSoon(t)
		case !t.few:
			// whoever waits for little room keeps its place: others may use up each bit of it at
			// once
			r.noRetry(t)
		}
		return
	}
	if room.Enough {
		r.noRetry(t)
	}
	from, size := t.pos+1, r.hub.lim.ReadBytes
	if t.rank != nil {
		size = max(size, rankReadBytes)
		if next, ordered := t.rank.Order.Next(); ordered {
			from = next.Seq
		}
	}
	r.read(t, from, size)
}

// waited says that the track goes on, with whatever room its window has, until that is full.
func (t *track) waited() bool { return t.few && t.retryAt == 0 }

// roomToRead is the room for messages that are behind.
func (r *replayer) roomToRead(t *track) replay.Room {
	c := t.c
	room := replay.Room{Some: r.hub.drained(c) && r.near(t, t.pos+1), Enough: true}
	if t.ack {
		if room = room.In(c.window, c.unacked); t.window > 0 {
			room = room.In(uint32(t.window), t.unacked)
		}
	}
	return room
}

// ranged takes a range that was read, for all who wait for it.
func (r *replayer) ranged(e *exchange.Range) {
	ts := r.hub.topics.byName.Get(e.Topic)
	if ts == nil {
		return
	}
	if waiting := r.reads.Arrived(&ts.reads, e.From); len(waiting) > 0 {
		r.hub.jobs.Push(&arrival{e: e, waiting: waiting})
	}
}

// arrival gives a range to those who wait for it, some at a time.
type arrival struct {
	e       *exchange.Range
	waiting []trackRef
	members []rankMember                // instead: the tracks that wait for a window that has ended
	ranking *ranked.Ranking[rankMember] // of those that are ranked; nil: none is
}

func (j *arrival) remaining() int { return len(j.waiting) + len(j.members) }

// next takes the next one that waits; there must be one.
func (j *arrival) next() (t trackRef) {
	if len(j.waiting) > 0 {
		t, j.waiting = j.waiting[0], j.waiting[1:]
	} else {
		t, j.members = j.members[0].track, j.members[1:]
	}
	return t
}

func (j *arrival) step(h *Hub) bool {
	for n := 0; n < fanSlice && j.remaining() > 0; n += 1 + h.takeCost() {
		if t := j.next().get(); t != nil {
			h.replay.arrived(t, j)
		}
	}
	if j.remaining() > 0 {
		return false
	}
	if j.ranking != nil {
		h.ranked.room.Request(j.ranking)
	}
	return true
}

func (r *replayer) arrived(t *track, j *arrival) {
	e := j.e
	t.reading = false
	if t.trackMore.first != 0 {
		r.firstArrived(t, e)
		return
	}
	r.hub.tracks.less(t)
	if !t.behind {
		return
	}
	if e.Err != nil && code.Of(e.Err) != wirev1.Code_CODE_EPOCH_CHANGED || e.Epoch < t.epoch {
		r.readLater(t)
		return
	}
	switch {
	case t.epoch == 0:
		r.hub.learnEpoch(t, e.Epoch)
	case t.told && e.Epoch > t.epoch:
		return // it asks again
	case e.Epoch > t.epoch:
		r.hub.newEpoch(t, e.Epoch, 0)
		t.behind = true
	case e.Err != nil:
		r.readLater(t)
		return
	}
	if e.Err == nil && e.From <= t.pos+1 {
		if t.rank != nil && r.hub.ranked.arrived(t, j) {
			return
		}
		r.holdRange(t, e)
	}
	r.enqueue(t)
}

// holdRange has a track hand on what is in a range.
func (r *replayer) holdRange(t *track, e *exchange.Range) {
	r.releaseRange(t)
	more := r.hub.tracks.more(t)
	more.rng, more.rngAt = e, 0
	r.pinned++
}

// putOff has a track wait that found no room for the next message of its range.
func (r *replayer) putOff(t *track, why wirev1.Code) {
	r.waitFor(t)
	if why == wirev1.Code_CODE_MEMORY_BUDGET {
		r.readLater(t) // its own queue may be empty, so that nothing opens it
	}
	if t.c.out.IsStalled() || r.pinned > pinnedRanges {
		r.releaseRange(t)
	}
}

func (r *replayer) readLater(t *track) {
	more := r.hub.tracks.more(t)
	more.retryAt, more.few = r.hub.now+int64(readAgain), false
	r.hub.wheel.Sooner(t.c.slot, t.retryAt)
}

// readFewSoon has the track go on with little room in its window, unless there is more of it
// before.
func (r *replayer) readFewSoon(t *track) {
	if t.retryAt == 0 && !t.few {
		more := r.hub.tracks.more(t)
		more.few, more.retryAt = true, r.hub.now+int64(fewAfter)
		r.hub.wheel.Sooner(t.c.slot, more.retryAt)
	}
}

func (r *replayer) noRetry(t *track) {
	if t.retryAt != 0 || t.few {
		more := r.hub.tracks.more(t)
		more.retryAt, more.few = 0, false
		r.hub.tracks.less(t)
	}
}

// handOn gives the track some of its range.
func (r *replayer) handOn(t *track) (done int) {
	for most := r.turnOf(t.c, t.ack); done < most; t.trackMore.rngAt++ {
		if t.rngAt == len(t.rng.Messages) {
			r.rangeEnds(t)
			return done
		}
		m := t.rng.Messages[t.rngAt]
		if m.Seq <= t.pos {
			continue
		}
		done++
		if m.Seq > t.pos+1 {
			r.hub.gaps.addGap(t, t.pos+1, m.Seq-1, wirev1.Code_CODE_RETENTION)
		}
		why := wirev1.Code_CODE_QUEUE_FULL
		if r.hub.drained(t.c) {
			why = r.hub.take(t, m)
		}
		if why == wirev1.Code_CODE_FILTERED { // the range was asked for before the filter was known
			r.releaseRange(t)
			r.readLater(t)
			r.enqueue(t)
			return done
		}
		if why != wirev1.Code_CODE_OK {
			r.putOff(t, why)
			return done
		}
	}
	r.enqueue(t)
	return done
}

// rangeEnds decides how it goes on behind a range: the track is level with the live stream, or
// reads again.
func (r *replayer) rangeEnds(t *track) {
	rng, ts := t.rng, t.topic
	r.releaseRange(t)
	if rng.Oldest > t.pos+1 {
		r.hub.gaps.addGap(t, t.pos+1, rng.Oldest-1, wirev1.Code_CODE_RETENTION)
	}
	head := rng.Head
	if ts.epoch == t.epoch {
		head = max(head, ts.last)
	}
	switch {
	case t.pos < head && len(rng.Messages) == 0:
		r.readLater(t) // the log is not as far as it says: don't spin
	case t.pos < head && t.rank != nil && t.rank.Level && r.hub.ranked.ranks(t):
		r.hub.ranked.await(t)
	case t.pos < head:
		r.enqueue(t)
	case ts.epoch > t.epoch:
		r.hub.newEpoch(t, ts.epoch, 0)
		r.hub.fallBehind(t)
	default:
		t.behind = false
		r.noRetry(t)
		r.hub.stats.Resumed++
	}
}

func (r *replayer) releaseRange(t *track) {
	if t.rng != nil {
		more := r.hub.tracks.more(t)
		more.rng, more.rngAt = nil, 0
		r.pinned--
		r.hub.tracks.less(t)
	}
}

// waitFor makes the track wait until a window or the queue opens.
func (r *replayer) waitFor(t *track) {
	if !t.waits {
		t.waits = true
		t.c.waiting++
	}
	r.tendFirst(t)
}

func (r *replayer) notWaiting(t *track) {
	if t.waits {
		t.waits = false
		t.c.waiting--
	}
}

// Those who are behind could have all of a loop's time, and of the cores that their clients need:
// so together they get a number of messages in a millisecond, and what is live has the rest.

// Paced says that somebody waits for the next millisecond, of the clock that SetTime tells.
func (h *Hub) Paced() bool { return h.replay.runnable.Len() > 0 && h.replay.pace.Exhausted(h.now) }

// A session is sent nothing more than Limits.Span seqs behind the first one that it has not
// settled. A message that timed out as often as it is sent on one connection waits for the next
// connection; where the session comes to stand still behind it, and a connection may last for
// months, it does not wait: it is read from the log and sent again, until it is ACKed or its
// attempts are used up and it is a dead letter.

// near reports whether seq is near enough to the first message that is not settled to be sent.
func (r *replayer) near(t *track, seq uint64) bool {
	return t.cur == nil || seq <= t.cur.Floor+uint64(r.hub.lim.Span)
}

// stands reports whether the track stands still behind a message that is not settled.
func (r *replayer) stands(t *track) bool { return t.cur != nil && !r.near(t, t.pos+1) }

// tendFirst has the message read that a track stands still behind, unless it is with the client, or
// on its way.
func (r *replayer) tendFirst(t *track) {
	c := t.c
	switch {
	case !t.ack || t.reading || t.told || t.held || c.state != stateOpen || c.draining || t.retryAt > r.hub.now || !r.stands(t):
		return
	case c.unacked >= c.window || t.window > 0 && t.unacked >= uint32(t.window) || !r.hub.drained(c):
		return // wake comes here again
	}
	first := t.cur.Floor + 1
	if t.win != nil && t.win.Find(first) != nil {
		return
	}
	r.hub.stats.StandStills++
	r.hub.tracks.more(t).first = first
	r.read(t, first, 1)
}

// read asks for a range of the topic's log from a seq on, unless another track waits for the same.
func (r *replayer) read(t *track, from uint64, size int) {
	ts := t.topic
	r.hub.tracks.more(t).asked, t.reading = from, true
	if r.reads.Wait(&ts.reads, from, t.ref()) {
		r.hub.stats.LogReads++
		r.hub.mesh.Read(r.hub.cfg.Loop, strings.Clone(ts.name), t.epoch, from, 0, size)
	}
}

// firstArrived goes on with what tendFirst asked for.
func (r *replayer) firstArrived(t *track, e *exchange.Range) {
	first := t.trackMore.first
	r.hub.tracks.more(t).first = 0
	switch {
	case e.Epoch > t.epoch && (e.Err == nil || code.Of(e.Err) == wirev1.Code_CODE_EPOCH_CHANGED):
		r.hub.newEpoch(t, e.Epoch, 0)
		t.behind = true
	case e.Err != nil || e.Epoch < t.epoch:
		r.readLater(t)
	case !r.stands(t) || t.cur.Floor+1 != first: // settled meanwhile
	case len(e.Messages) > 0 && e.Messages[0].Seq == first:
		r.sendAgain(t, e.Messages[0])
	case e.Oldest > first:
		r.hub.gaps.addGap(t, first, e.Oldest-1, wirev1.Code_CODE_RETENTION)
	case len(e.Messages) > 0:
		r.hub.gaps.addGap(t, first, e.Messages[0].Seq-1, wirev1.Code_CODE_RETENTION)
	default:
		r.readLater(t) // the log is not as far as it says
	}
	if t.behind {
		r.enqueue(t)
	}
	r.hub.tracks.less(t)
	r.hub.waker.wake(t.c)
}

// sendAgain sends a message to the client again that had left the window un-ACKed, or gives it up.
func (r *replayer) sendAgain(t *track, m *exchange.Message) {
	c, attempts := t.c, t.cur.Attempts(m.Seq)
	switch {
	case r.hub.hasExpired(m):
		r.exhausted(t, m, attempts, wirev1.Code_CODE_EXPIRED)
		return
	case attempts >= r.hub.topics.policy(t.topic).MaxAttempts:
		r.exhausted(t, m, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		return
	}
	switch r.hub.judge(t, m) {
	case filtered:
		r.hub.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		return
	case unjudged:
		r.readLater(t)
		return
	}
	if c.unacked >= c.window || r.hub.full(c, len(m.Frame)) != wirev1.Code_CODE_OK {
		r.readLater(t)
		return
	}
	if t.win != nil {
		c.timedOut -= min(c.timedOut, uint32(t.win.Unpark(false, m.Seq, nil)))
	}
	r.hub.windows.add(t, m, uint16(min(attempts, 65535)))
	t.win.Find(m.Seq).Sends = 1 // so that a late ACK of what was sent before counts
	it := sendq.Redelivery(m, &t.Stream, t.kind != kindPlain, uint16(min(attempts, 65535)))
	r.hub.push(c, &it)
	r.hub.sessions.cursorChanged(t)
}

// exhausted makes a message a dead letter of the session that is not sent any more, and says so.
func (r *replayer) exhausted(t *track, m *exchange.Message, attempts uint32, why wirev1.Code) {
	r.hub.stats.Drops.add(why, 1)
	r.hub.sessions.giveUp(t, m, attempts, why)
	r.hub.control(t.c, wirev1.FrameType_FRAME_TYPE_PROGRESS, r.hub.gaps.progress(t, m.Seq, m.Seq, why))
}
