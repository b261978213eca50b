package delivery

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
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
func (g *gapReporter) addGap(t *track, from, to uint64, why wirev1.Code) {
	g.hub.stats.Drops.add(why, to-from+1)
	if !t.gap.Takes(from, why) {
		g.reportGap(t, 0)
	}
	more := g.hub.tracks.more(t)
	if more.gap.Add(from, to, why, g.hub.now) {
		g.hub.wheel.Sooner(t.c.slot, more.gap.Due)
	}
	t.pos = max(t.pos, to)
	if t.cur != nil {
		t.cur.Settle(from, to)
		g.hub.sessions.cursorChanged(t)
	}
}

// reportGap tells the client of the gap, if there is one, as urgently as the message behind it.
func (g *gapReporter) reportGap(t *track, priority uint8) {
	if !t.gap.IsOpen() {
		return
	}
	g.hub.nameEpoch(t, priority)
	it := sendq.GapOf(&t.Stream, t.gap.From, g.progressFrame(t, t.gap.From, t.gap.To, t.gap.Code), priority)
	g.hub.push(t.c, &it)
	g.forgetGap(t)
}

// forgetGap forgets the gap that the client was not told of.
func (g *gapReporter) forgetGap(t *track) {
	if t.gap.IsOpen() {
		g.hub.tracks.more(t).gap = gaps.Gap{}
		g.hub.tracks.less(t)
	}
}

// forgetLatest forgets the message that waits.
func (g *gapReporter) forgetLatest(t *track) {
	if t.latest != nil {
		g.hub.tracks.more(t).latest = nil
		g.hub.tracks.less(t)
	}
}

// progress is good until it is asked for again.
func (g *gapReporter) progress(t *track, from, to uint64, why wirev1.Code) *wirev1.Progress {
	p := &g.frame
	p.Topic, p.Epoch, p.From, p.To, p.Code, p.Subs = t.topic.name, t.epoch, from, to, why, p.Subs[:0]
	if t.kind != kindPlain {
		p.Subs = t.ids(p.Subs)
	}
	return p
}

// progressFrame is the encoded progress.
func (g *gapReporter) progressFrame(t *track, from, to uint64, why wirev1.Code) []byte {
	return g.hub.queues.Encode(wirev1.FrameType_FRAME_TYPE_PROGRESS, g.progress(t, from, to, why))
}

// expired skips a message whose time is over.
func (g *gapReporter) expired(t *track, m *exchange.Message) {
	if t.cur != nil {
		g.hub.sessions.giveUp(t, m, t.cur.Attempts(m.Seq), wirev1.Code_CODE_EXPIRED)
	}
	g.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_EXPIRED)
}

// conflate keeps the newest message alone: it goes out once nothing of the track is queued and a
// window is open.
func (g *gapReporter) conflate(t *track, m *exchange.Message) {
	g.skipLatest(t)
	g.hub.tracks.more(t).latest, t.pos = m, m.Seq
	g.tryLatest(t)
}

// skipLatest gives up the message that waits, because a newer one came.
func (g *gapReporter) skipLatest(t *track) {
	m := t.latest
	if m == nil {
		return
	}
	g.forgetLatest(t)
	if !t.gap.IsOpen() || t.gap.Precedes(m.Seq) {
		g.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
		return
	}
	// What was filtered behind it is named after it.
	behind, pos := t.gap, t.pos
	g.forgetGap(t)
	g.addGap(t, m.Seq, m.Seq, wirev1.Code_CODE_CONFLATED)
	g.reportGap(t, 0)
	more := g.hub.tracks.more(t)
	more.gap.Add(behind.From, behind.To, behind.Code, g.hub.now)
	g.hub.wheel.Sooner(t.c.slot, more.gap.Due)
	t.pos = pos
}

// tryLatest hands on the message that waits, if it may.
func (g *gapReporter) tryLatest(t *track) {
	m := t.latest
	if m == nil || t.Queued() > 0 || t.c.draining || t.c.state != stateOpen {
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
func (g *gapReporter) dropOldest(t *track, m *exchange.Message, why wirev1.Code) {
	c, gap := t.c, sendq.NoGap
	q := &c.out
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
			g.hub.stats.Drops.add(why, 1)
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
func (g *gapReporter) dropInto(c *conn, i, gap uint32, why wirev1.Code) uint32 {
	it := c.out.At(i)
	t, seq := trackOf(it.Stream()), it.Message().Seq
	from := seq
	if gap != sendq.NoGap {
		from = c.out.At(gap).From()
	}
	return c.out.DropFirstInto(i, gap, g.progressFrame(t, from, seq, why), why)
}
