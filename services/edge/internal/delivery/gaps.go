package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
)

// gapReporter tells clients of the messages that will not come to them.
type gapReporter struct {
	hub   *Hub
	frame wirev1.Progress // scratch
}

// addGap notes that from to to will not come, and moves on behind them. The client is told before
// the next Message of the topic, or after gaps.Delay.
func (g *gapReporter) addGap(t *state.Track, from, to uint64, why wirev1.Code) {
	g.hub.stats.Drops.Add(why, to-from+1)
	if !t.Gap.Takes(from, why) {
		g.reportGap(t, 0)
	}
	more := g.hub.tracks.More(t)
	if more.Gap.Add(from, to, why, g.hub.now) {
		g.hub.wheel.Sooner(t.Conn.Slot, more.Gap.Due)
	}
	t.Pos = max(t.Pos, to)
	if t.Cursor != nil {
		t.Cursor.Settle(from, to)
		g.hub.sessions.cursorChanged(t)
	}
}

// reportGap tells the client of the gap, if there is one, as urgently as the message behind it.
func (g *gapReporter) reportGap(t *state.Track, priority uint8) {
	if !t.Gap.IsOpen() {
		return
	}
	g.hub.nameEpoch(t, priority)
	it := sendq.GapOf(&t.Stream, t.Gap.From, g.progressFrame(t, t.Gap.From, t.Gap.To, t.Gap.Code), priority)
	g.hub.push(t.Conn, &it)
	g.forgetGap(t)
}

// forgetGap forgets the gap that the client was not told of.
func (g *gapReporter) forgetGap(t *state.Track) {
	if t.Gap.IsOpen() {
		g.hub.tracks.More(t).Gap = gaps.Gap{}
		g.hub.tracks.Less(t)
	}
}

// forgetLatest forgets the message that waits.
func (g *gapReporter) forgetLatest(t *state.Track) {
	if t.Latest != nil {
		g.hub.tracks.More(t).Latest = nil
		g.hub.tracks.Less(t)
	}
}

// progress is good until it is asked for again.
func (g *gapReporter) progress(t *state.Track, from, to uint64, why wirev1.Code) *wirev1.Progress {
	p := &g.frame
	p.Topic, p.Epoch, p.From, p.To, p.Code, p.Subs = t.Topic.Name(), t.Epoch, from, to, why, p.Subs[:0]
	if t.Kind != state.KindPlain {
		p.Subs = t.IDs(p.Subs)
	}
	return p
}

// progressFrame is the encoded progress.
func (g *gapReporter) progressFrame(t *state.Track, from, to uint64, why wirev1.Code) []byte {
	return g.hub.queues.Encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, g.progress(t, from, to, why))
}

// expired skips a message whose time is over.
func (g *gapReporter) expired(t *state.Track, m *exchange.Message) {
	if t.Cursor != nil {
		g.hub.sessions.giveUp(t, m, t.Cursor.Attempts(m.Seq), wirev1.Code_CODE_EXPIRED)
	}
	g.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED)
}

// conflate keeps the newest message alone: it goes out once nothing of the track is queued and a
// window is open.
func (g *gapReporter) conflate(t *state.Track, m *exchange.Message) {
	g.skipLatest(t)
	g.hub.tracks.More(t).Latest, t.Pos = m, m.Seq
	g.tryLatest(t)
}

// skipLatest gives up the message that waits, because a newer one came.
func (g *gapReporter) skipLatest(t *state.Track) {
	m := t.Latest
	if m == nil {
		return
	}
	g.forgetLatest(t)
	if !t.Gap.IsOpen() || t.Gap.Precedes(m.Seq) {
		g.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
		return
	}
	// What was filtered behind it is named after it.
	behind, pos := t.Gap, t.Pos
	g.forgetGap(t)
	g.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
	g.reportGap(t, 0)
	more := g.hub.tracks.More(t)
	more.Gap.Add(behind.From, behind.To, behind.Code, g.hub.now)
	g.hub.wheel.Sooner(t.Conn.Slot, more.Gap.Due)
	t.Pos = pos
}

// tryLatest hands on the message that waits, if it may.
func (g *gapReporter) tryLatest(t *state.Track) {
	m := t.Latest
	if m == nil || t.Queued() > 0 || t.Conn.Draining || t.Conn.Phase != state.Open {
		return
	}
	switch g.hub.deliver(t, m, 0) {
	case wirev1.Code_CODE_OK:
		g.forgetLatest(t)
		return
	case wirev1.Code_CODE_MEMORY_BUDGET:
		g.hub.replay.readLater(t)
	}
	g.hub.replay.waitFor(t)
}

// dropOldest makes room for m by turning the track's oldest queued messages into a gap.
func (g *gapReporter) dropOldest(t *state.Track, m *exchange.Message, why wirev1.Code) {
	c, gap := t.Conn, sendq.NoGap
	q := &c.Out
	for i := uint32(0); i < q.Len(); i++ { //nolint:intrange // splitting a run makes the queue longer
		it := q.At(i)
		if it.Stream() != &t.Stream || q.Begun(i) {
			continue
		}
		if it.Kind() == sendq.Gap {
			if gap = sendq.NoGap; it.MadeFor(why) { // one of a change of epoch has no reason
				gap = i
			}
			continue
		}
		for more := true; more; {
			// else a split has made the rest the next item
			more = gap != sendq.NoGap && q.At(i).Count() > 1
			g.hub.stats.Drops.Add(why, 1)
			g.hub.addCost(itemsPerUnit)
			gap = g.dropInto(c, i, gap, why)
			if g.hub.deliver(t, m, 0) == wirev1.Code_CODE_OK {
				g.hub.addCost(int(i))
				q.Tidy()
				return
			}
		}
	}
	g.hub.addCost(int(q.Len()))
	g.addGap(t, m.Seq, m.Seq, why)
}

// dropInto makes the first message of the i-th item part of the gap at a place, or with NoGap a gap
// of its own, and gives the place of that.
func (g *gapReporter) dropInto(c *state.Conn, i, gap uint32, why wirev1.Code) uint32 {
	it := c.Out.At(i)
	t, seq := state.TrackOf(it.Stream()), it.Message().Seq
	from := seq
	if gap != sendq.NoGap {
		from = c.Out.At(gap).From()
	}
	return c.Out.DropFirstInto(i, gap, g.progressFrame(t, from, seq, why), why)
}
