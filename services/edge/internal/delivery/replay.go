package delivery

import (
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
	"github.com/pushmesh/pushmesh/services/edge/internal/replay"
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
	runnable replay.Line[runner] // behind, and able to go on
	reads    replay.Reads[state.TrackRef]
	pace     replay.Pace
	pinned   int // ranges held by tracks
}

// enqueue puts a track that is behind in line.
func (r *replayer) enqueue(t *state.Track) {
	r.hub.lagging.Add(t)
	if t.Told == state.ToldLevel {
		t.Told = state.ToldBehind
	}
	if !t.Runs && !t.Held && !t.Told.Any() {
		t.Runs = true
		r.runnable.Push(t.Conn.Slot, t.Conn.Tracks.Len(), runner{t: t.Ref()})
	}
}

// enqueueGroup puts a member with messages that wait in line.
func (r *replayer) enqueueGroup(n *state.Member) {
	if !n.Runs {
		n.Runs = true
		r.runnable.Push(n.Owner.Slot, 0, runner{g: n})
	}
}

// slice lets the next track in line go on, and says how much it did.
func (r *replayer) slice() int {
	if r.pace.Exhausted(r.hub.now) {
		return 0
	}
	next, ok := r.runnable.Pop(r.reads.Many())
	if !ok {
		return 0
	}
	if g := next.g; g != nil {
		return 1 + r.hub.groups.handOn(g, r.turnOf(g.Owner, g.ACK))
	}
	t := next.t.Get()
	if t == nil {
		return 1
	}
	t.Runs = false
	if !t.Behind || t.Reading || t.Told.Any() || t.Conn.Draining || t.Conn.Phase != state.Open {
		return 1
	}
	if t.Rank != nil {
		n := r.hub.ranked.goOn(t)
		r.pace.Spend(n)
		return 1 + n
	}
	if t.Range == nil {
		r.ask(t)
		return 1
	}
	n := r.handOn(t)
	r.pace.Spend(n)
	return 1 + n
}

// ask reads on from the log, when windows and queue have room and no other track waits for the
// same.
func (r *replayer) ask(t *state.Track) {
	if t.RetryAt > r.hub.now && !t.Few {
		return
	}
	room := r.roomToRead(t)
	if !room.Some || !room.Enough && !t.Waited() {
		r.waitFor(t)
		switch {
		case room.Some:
			r.readFewSoon(t)
		case !t.Few:
			// whoever waits for little room keeps its place: others may use up each bit of it at
			// once
			r.noRetry(t)
		}
		return
	}
	if room.Enough {
		r.noRetry(t)
	}
	from, size := t.Pos+1, r.hub.lim.ReadBytes
	if t.Rank != nil {
		size = max(size, rankReadBytes)
		if next, ordered := t.Rank.Order.Next(); ordered {
			from = next.Seq
		}
	}
	r.read(t, from, size)
}

// roomToRead is the room for messages that are behind.
func (r *replayer) roomToRead(t *state.Track) replay.Room {
	c := t.Conn
	room := replay.Room{Some: r.hub.drained(c) && r.near(t, t.Pos+1), Enough: true}
	if t.ACK {
		if room = room.In(c.Window, c.Unacked); t.Window > 0 {
			room = room.In(uint32(t.Window), t.Unacked)
		}
	}
	return room
}

// ranged takes a range that was read, for all who wait for it.
func (r *replayer) ranged(e *exchange.Range) {
	if waiting := r.hub.windows.again.Arrived(e.Topic, e.From); len(waiting) > 0 {
		r.hub.jobs.Push(&refilling{e: e, waiting: waiting})
	}
	ts := r.hub.topics.ByName.Get(e.Topic)
	if ts == nil {
		return
	}
	if waiting := r.reads.Arrived(&ts.Reads, e.From); len(waiting) > 0 {
		r.hub.jobs.Push(&arrival{e: e, waiting: waiting})
	}
}

// arrival gives a range to those who wait for it, some at a time.
type arrival struct {
	e       *exchange.Range
	waiting []state.TrackRef
	// instead: the tracks that wait for a window that has ended
	members []state.RankMember
	ranking *ranked.Ranking[state.RankMember] // of those that are ranked; nil: none is
}

func (j *arrival) remaining() int { return len(j.waiting) + len(j.members) }

// next takes the next one that waits; there must be one.
func (j *arrival) next() (t state.TrackRef) {
	if len(j.waiting) > 0 {
		t, j.waiting = j.waiting[0], j.waiting[1:]
	} else {
		t, j.members = j.members[0].Track, j.members[1:]
	}
	return t
}

func (j *arrival) step(h *Hub) bool {
	for n := 0; n < fanSlice && j.remaining() > 0; n += 1 + h.takeCost() {
		if t := j.next().Get(); t != nil {
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

func (r *replayer) arrived(t *state.Track, j *arrival) {
	e := j.e
	t.Reading = false
	if t.TrackMore.First != 0 {
		r.firstArrived(t, e)
		return
	}
	r.hub.tracks.Less(t)
	if !t.Behind {
		return
	}
	if e.Err != nil && code.Of(e.Err) != wirev1.Code_CODE_EPOCH_CHANGED || e.Epoch < t.Epoch {
		r.readLater(t)
		return
	}
	switch {
	case t.Epoch == 0:
		r.hub.learnEpoch(t, e.Epoch)
	case t.Told.Any() && e.Epoch > t.Epoch:
		return // it asks again
	case e.Epoch > t.Epoch:
		r.hub.newEpoch(t, e.Epoch, 0)
		t.Behind = true
	case e.Err != nil:
		r.readLater(t)
		return
	}
	if e.Err == nil && e.From <= t.Pos+1 {
		if t.Rank != nil && r.hub.ranked.arrived(t, j) {
			return
		}
		r.holdRange(t, e)
	}
	r.enqueue(t)
}

// holdRange has a track hand on what is in a range.
func (r *replayer) holdRange(t *state.Track, e *exchange.Range) {
	r.releaseRange(t)
	more := r.hub.tracks.More(t)
	more.Range, more.RangeAt = e, 0
	r.pinned++
}

// putOff has a track wait that found no room for the next message of its range.
func (r *replayer) putOff(t *state.Track, why wirev1.Code) {
	r.waitFor(t)
	if why == wirev1.Code_CODE_MEMORY_BUDGET {
		r.readLater(t) // its own queue may be empty, so that nothing opens it
	}
	if t.Conn.Out.IsStalled() || r.pinned > pinnedRanges {
		r.releaseRange(t)
	}
}

func (r *replayer) readLater(t *state.Track) {
	more := r.hub.tracks.More(t)
	more.RetryAt, more.Few = r.hub.now+int64(readAgain), false
	r.hub.wheel.Sooner(t.Conn.Slot, t.RetryAt)
}

// readFewSoon has the track go on with little room in its window, unless there is more of it
// before.
func (r *replayer) readFewSoon(t *state.Track) {
	if t.RetryAt == 0 && !t.Few {
		more := r.hub.tracks.More(t)
		more.Few, more.RetryAt = true, r.hub.now+int64(fewAfter)
		r.hub.wheel.Sooner(t.Conn.Slot, more.RetryAt)
	}
}

func (r *replayer) noRetry(t *state.Track) {
	if t.RetryAt != 0 || t.Few {
		more := r.hub.tracks.More(t)
		more.RetryAt, more.Few = 0, false
		r.hub.tracks.Less(t)
	}
}

// handOn gives the track some of its range.
func (r *replayer) handOn(t *state.Track) (done int) {
	for most := r.turnOf(t.Conn, t.ACK); done < most; t.TrackMore.RangeAt++ {
		if t.RangeAt == len(t.Range.Messages) {
			r.rangeEnds(t)
			return done
		}
		m := t.Range.Messages[t.RangeAt]
		if m.Seq <= t.Pos {
			continue
		}
		done++
		if m.Seq > t.Pos+1 {
			r.hub.gaps.addGap(t, t.Pos+1, m.Seq-1, wirev1.Code_CODE_RETENTION)
		}
		why := wirev1.Code_CODE_QUEUE_FULL
		if r.hub.drained(t.Conn) {
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
func (r *replayer) rangeEnds(t *state.Track) {
	rng, ts := t.Range, t.Topic
	r.releaseRange(t)
	if rng.Oldest > t.Pos+1 {
		r.hub.gaps.addGap(t, t.Pos+1, rng.Oldest-1, wirev1.Code_CODE_RETENTION)
	}
	head := rng.Head
	if ts.Epoch == t.Epoch {
		head = max(head, ts.Last)
	}
	switch {
	case t.Pos < head && len(rng.Messages) == 0:
		r.readLater(t) // the log is not as far as it says: don't spin
	case t.Pos < head && t.Rank != nil && t.Rank.Level && r.hub.ranked.ranks(t):
		r.hub.ranked.await(t)
	case t.Pos < head:
		r.enqueue(t)
	case ts.Epoch > t.Epoch:
		r.hub.newEpoch(t, ts.Epoch, 0)
		r.hub.fallBehind(t)
	default:
		t.Behind = false
		r.noRetry(t)
		r.hub.stats.Resumed++
	}
}

func (r *replayer) releaseRange(t *state.Track) {
	if t.Range != nil {
		more := r.hub.tracks.More(t)
		more.Range, more.RangeAt = nil, 0
		r.pinned--
		r.hub.tracks.Less(t)
	}
}

// waitFor makes the track wait until a window or the queue opens.
func (r *replayer) waitFor(t *state.Track) {
	if !t.Waits {
		t.Waits = true
		t.Conn.Waiting++
	}
	r.tendFirst(t)
}

func (r *replayer) notWaiting(t *state.Track) {
	if t.Waits {
		t.Waits = false
		t.Conn.Waiting--
	}
}

// Those who are behind could have all of a loop's time, and of the cores that their clients need:
// so together they get a number of messages in a millisecond, and what is live has the rest.

// Paced says that somebody waits for the next millisecond, of the clock that SetTime tells.
func (h *Hub) Paced() bool { return h.replay.ready() && h.replay.pace.Exhausted(h.now) }

// ready reports whether somebody may go on, pace aside.
func (r *replayer) ready() bool { return r.runnable.Ready(r.reads.Many()) }

// A session is sent nothing more than Limits.Span seqs behind the first one that it has not
// settled. A message that timed out as often as it is sent on one connection waits for the next
// connection; where the session comes to stand still behind it, and a connection may last for
// months, it does not wait: it is read from the log and sent again, until it is ACKed or its
// attempts are used up and it is a dead letter.

// near reports whether seq is near enough to the first message that is not settled to be sent.
func (r *replayer) near(t *state.Track, seq uint64) bool {
	return t.Cursor == nil || seq <= t.Cursor.Floor+uint64(r.hub.lim.Span)
}

// stands reports whether the track stands still behind a message that is not settled.
func (r *replayer) stands(t *state.Track) bool { return t.Cursor != nil && !r.near(t, t.Pos+1) }

// tendFirst has the message read that a track stands still behind, unless it is with the client, or
// on its way.
func (r *replayer) tendFirst(t *state.Track) {
	c := t.Conn
	switch {
	case !t.ACK || t.Reading || t.Told.Any() || t.Held || c.Phase != state.Open || c.Draining || t.RetryAt > r.hub.now || !r.stands(t):
		return
	case c.Unacked >= c.Window || t.Window > 0 && t.Unacked >= uint32(t.Window) || !r.hub.drained(c):
		return // wake comes here again
	}
	first := t.Cursor.Floor + 1
	if t.Win != nil && t.Win.Find(first) != nil {
		return
	}
	r.hub.stats.StandStills++
	r.hub.tracks.More(t).First = first
	r.read(t, first, 1)
}

// read asks for a range of the topic's log from a seq on, unless another track waits for the same.
func (r *replayer) read(t *state.Track, from uint64, size int) {
	ts := t.Topic
	r.hub.tracks.More(t).Asked, t.Reading = from, true
	if r.reads.Wait(&ts.Reads, from, t.Conn.Tracks.Len(), t.Ref()) {
		r.hub.stats.LogReads++
		r.pace.Spend(replay.ReadCost(t.Conn.Tracks.Len()))
		r.hub.mesh.Read(r.hub.cfg.Loop, strings.Clone(ts.Name()), t.Epoch, from, 0, size)
	}
}

// firstArrived goes on with what tendFirst asked for.
func (r *replayer) firstArrived(t *state.Track, e *exchange.Range) {
	first := t.TrackMore.First
	r.hub.tracks.More(t).First = 0
	switch {
	case e.Epoch > t.Epoch && (e.Err == nil || code.Of(e.Err) == wirev1.Code_CODE_EPOCH_CHANGED):
		r.hub.newEpoch(t, e.Epoch, 0)
		t.Behind = true
	case e.Err != nil || e.Epoch < t.Epoch:
		r.readLater(t)
	case !r.stands(t) || t.Cursor.Floor+1 != first: // settled meanwhile
	case len(e.Messages) > 0 && e.Messages[0].Seq == first:
		r.sendAgain(t, e.Messages[0])
	case e.Oldest > first:
		r.hub.gaps.addGap(t, first, e.Oldest-1, wirev1.Code_CODE_RETENTION)
	case len(e.Messages) > 0:
		r.hub.gaps.addGap(t, first, e.Messages[0].Seq-1, wirev1.Code_CODE_RETENTION)
	default:
		r.readLater(t) // the log is not as far as it says
	}
	if t.Behind {
		r.enqueue(t)
	}
	r.hub.tracks.Less(t)
	r.hub.waker.Wake(t.Conn)
}

// sendAgain sends a message to the client again that had left the window un-ACKed, or gives it up.
func (r *replayer) sendAgain(t *state.Track, m *exchange.Message) {
	c, attempts := t.Conn, t.Cursor.Attempts(m.Seq)
	switch {
	case r.hub.hasExpired(m):
		r.exhausted(t, m, attempts, wirev1.Code_CODE_EXPIRED)
		return
	case attempts >= r.hub.topics.Policy(t.Topic).MaxAttempts && r.hub.sessions.mayExhaust(t):
		r.exhausted(t, m, attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		return
	}
	switch r.hub.tracks.Judge(t, m) {
	case state.Filtered:
		r.hub.gaps.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_FILTERED)
		return
	case state.Unjudged:
		r.readLater(t)
		return
	}
	if c.Unacked >= c.Window || r.hub.full(c, len(m.Frame)) != wirev1.Code_CODE_OK {
		r.readLater(t)
		return
	}
	if t.Win != nil {
		c.TimedOut -= min(c.TimedOut, uint32(t.Win.Unpark(false, m.Seq, nil)))
	}
	r.hub.windows.add(t, m, uint16(min(attempts, 65535)))
	t.Win.Find(m.Seq).Sends = 1 // so that a late ACK of what was sent before counts
	it := sendq.Redelivery(m, &t.Stream, t.Kind != state.KindPlain, uint16(min(attempts, 65535)))
	r.hub.push(c, &it)
	r.hub.sessions.cursorChanged(t)
}

// exhausted makes a message a dead letter of the session that is not sent any more, and says so.
func (r *replayer) exhausted(t *state.Track, m *exchange.Message, attempts uint32, why wirev1.Code) {
	r.hub.stats.Drops.Add(why, 1)
	r.hub.sessions.giveUp(t, m, attempts, why)
	r.hub.control(t.Conn, wirev1.FrameType_FRAME_TYPE_PROGRESS, r.hub.gaps.progress(t, m.Seq, m.Seq, why))
}
