package delivery

import (
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
	"github.com/pushmesh/pushmesh/services/edge/internal/wildcards"
)

const (
	// fanSlice is how many deliveries are made before other work has its turn.
	fanSlice = 256
	// fanMost is how many messages of a topic are fanned out together: the walk over its
	// subscribers, which are far apart in memory, is shared by them.
	fanMost = 64
)

// fanout is the live messages in hand, of one topic, and how far they have come. A topic with very
// many subscribers takes several slices, and no other message overtakes it meanwhile.
type fanout struct {
	hub   *Hub
	inbox walk.FIFO[exchange.Live]

	ms      []*exchange.Message // durable ones without gaps between them
	runs    []sendq.Run         // they make
	bytes   int                 // of their frames
	expires uint64              // the first of them, Unix microseconds; 0: none does
	ts      *state.Topic
	at      int // next of ts.tracks
	// wildcard subscriptions that began lately, and may have no track at ts yet
	joins []state.SubscriptionRef
	// all that match: they may have no track at ts yet, or get an ephemeral message of a topic
	// without a state of its own
	wild   wildcards.Walk[state.Subscription]
	ended  int    // batches at the beginning of inbox that these are the last messages of
	next   int    // of the messages of the batch behind those
	serial uint32 // of these messages

	shared []*state.Subscription // scratch: subscriptions that share a message
}

func (f *fanout) active() bool { return len(f.ms) > 0 }

// slice hands on about budget deliveries and says how many it made. One slice of the subscriptions
// that begin is among them, however many messages wait: between messages, never within one.
func (f *fanout) slice(budget int) int {
	done, starts := 0, true
	for done < budget {
		switch {
		case f.active():
			done += f.step(budget-done) + 1
		case starts && f.hub.starter.waits():
			starts = false
			done += f.hub.starter.slice()
		case f.inbox.Len() == 0:
			return done
		default:
			f.nextMessages()
			done++
		}
	}
	return done
}

// nextMessages takes the next live messages up.
func (f *fanout) nextMessages() {
	f.takeUp()
	if len(f.ms) == 0 {
		f.liveDone() // an empty batch
		return
	}
	f.runs, f.bytes, f.expires = sendq.Runs(f.runs[:0], f.ms), 0, 0
	for _, m := range f.ms {
		f.bytes += len(m.Frame)
		if m.ExpiresAt != 0 && (f.expires == 0 || m.ExpiresAt < f.expires) {
			f.expires = m.ExpiresAt
		}
	}
	m := f.ms[0]
	f.serial++
	f.ts, f.at = f.hub.topics.ByName.Get(m.Topic), 0
	f.findJoins(m)
	if f.ts != nil && m.Seq > 0 {
		f.hub.starter.came(f.ts, m)
		f.ts.Came(f.ms[len(f.ms)-1])
	}
	f.hub.ranked.room.Gather(f.ms)
}

// findJoins finds the wildcard subscriptions that match and may have no track at the topic yet. The
// messages in hand were there before those that are added to the log of them meanwhile: no
// subscription becomes active before they are fanned out.
func (f *fanout) findJoins(m *exchange.Message) {
	kept, wild := false, false
	if f.ts != nil {
		f.joins, kept = f.hub.wildcards.log.Since(f.ts.WildAt)
	}
	if !kept {
		wild = f.wild.Begin(&f.hub.wildcards.index, m.Topic)
	}
	if f.ts == nil && m.Seq > 0 && wild {
		f.ts = f.hub.topics.Get(m.Topic)
	}
	if f.ts != nil {
		f.ts.WildAt = f.hub.wildcards.log.Next()
	}
}

// takeUp takes what follows each other of the batches that wait.
func (f *fanout) takeUp() {
	for f.ended = 0; len(f.ms) < fanMost; {
		batch := f.inbox.At(f.ended).Messages
		if f.next == len(batch) {
			if f.ended+1 == f.inbox.Len() {
				return
			}
			f.ended, f.next = f.ended+1, 0
			continue
		}
		m := batch[f.next]
		if n := len(f.ms); n > 0 && !continues(f.ms[n-1], m) {
			return
		}
		f.ms, f.next = append(f.ms, m), f.next+1
	}
}

// continues reports whether next may be fanned out together with m, which came before it.
func continues(m, next *exchange.Message) bool {
	return m.Topic == next.Topic && m.Epoch == next.Epoch && (next.Seq == m.Seq+1 || next.Seq == 0 && m.Seq == 0)
}

// fresh says that none of the messages in hand has expired.
func (f *fanout) fresh() bool { return f.expires == 0 || f.expires > f.hub.wall }

func (f *fanout) liveDone() {
	live, _ := f.inbox.Pop()
	f.next = 0
	f.hub.cfg.LiveDone(live)
}

// step goes on with the messages in hand and says how many deliveries it made.
func (f *fanout) step(budget int) (done int) {
	n := len(f.ms)
	for ; len(f.joins) > 0 && done < budget; f.joins = f.joins[1:] {
		if s := f.joins[0].Get(); s != nil && topic.Match(s.Filter(), f.ts.Name()) {
			f.joinTopic(s, f.ts, f.ms[0].Epoch, f.ms[0].Seq > 0)
		}
		done += 1 + f.hub.takeCost()
	}
	for done < budget {
		s := f.wild.Next()
		if s == nil {
			break
		}
		if f.ts != nil {
			f.joinTopic(s, f.ts, f.ms[0].Epoch, f.ms[0].Seq > 0)
			done += 1 + f.hub.takeCost()
		} else {
			f.offerEphemeral(s)
			done += n + f.hub.takeCost()
		}
	}
	for f.ts != nil && f.at < f.ts.Tracks.Len() && done < budget {
		t := f.ts.Tracks.At(f.at)
		f.at++
		done += n + f.hub.takeCost()
		if f.ms[0].Seq > 0 {
			f.offerRun(t)
		} else if t.Held && !t.Open() {
			continue
		} else if t.Kind == state.KindPlain {
			f.ephemeralRun(t.Conn, nil, nil, wirev1.Overflow(t.Overflow), 0)
		} else if t.Rank != nil {
			f.hub.ranked.offerEphemeral(t.Conn, t, nil, wirev1.Overflow(t.Overflow))
		} else {
			f.ephemeralRun(t.Conn, t, nil, wirev1.Overflow(t.Overflow), 0)
		}
	}
	if done < budget {
		f.finish()
	}
	return done + f.hub.takeCost()
}

// finish ends the messages in hand.
func (f *fanout) finish() {
	ts := f.ts
	clear(f.ms)
	clear(f.runs)
	f.ms, f.ts = f.ms[:0], nil
	f.wild.End()
	if ts != nil {
		f.hub.letGoTopic(ts)
	}
	next := f.next
	for ; f.ended > 0; f.ended-- {
		f.liveDone()
	}
	if f.next = next; next == len(f.inbox.Peek().Messages) {
		f.liveDone()
	}
}

// stepBack gives the place to take a track out of the topic's list at, for one at a place. Where
// the topic is in hand, those not reached yet stay ahead.
func (f *fanout) stepBack(ts *state.Topic, at int) int {
	if f.ts != ts || at >= f.at {
		return at
	}
	f.at--
	edge := ts.Tracks.At(f.at)
	ts.Tracks.Set(at, edge)
	edge.AtTopic = uint32(at)
	return f.at
}

// joinTopic gives a wildcard subscription its track at a topic that it has none at: the topic
// appeared after it, so it starts at seq 1, or where its session stands. epoch is that of its log,
// if logged says that it has one. A subscription that is still beginning remembers the topic.
func (f *fanout) joinTopic(s *state.Subscription, ts *state.Topic, epoch uint64, logged bool) {
	if !f.hub.starter.hear(s, ts, logged) && s.Active {
		f.giveTrack(s, ts, epoch, logged)
	}
}

// trackBytes is what is kept for a topic that a subscription with wildcards has met: the topic, a
// track, and its places in the lists of the connection and the topic.
const trackBytes = 320

// giveTrack does so at once. What it keeps is charged, and not refused: the subscription has begun.
func (f *fanout) giveTrack(s *state.Subscription, ts *state.Topic, epoch uint64, logged bool) {
	if t := f.hub.tracks.SharedBy(s, ts); t != nil {
		f.hub.tracks.Share(t, s)
		return
	}
	if s.Bounded() && int(s.Topics) >= f.hub.lim.WildcardTopics {
		f.hub.endSub(s, wirev1.Code_CODE_TOO_MANY_TOPICS, "the filter matches too many topics by now")
		return
	}
	t := f.hub.tracks.Add(s, ts)
	s.Topics++
	f.hub.keepFor(s, trackBytes)
	if logged && !s.Headless {
		f.hub.learnEpoch(t, epoch)
	}
	if s.Kind == state.KindSession && logged {
		f.hub.sessions.resumeTrack(t, epoch)
	}
	if t.Held = !s.Open; t.Held {
		t.Behind = true
	}
}

// offerEphemeral hands the ephemeral messages in hand to a wildcard subscription that has no track
// for them.
func (f *fanout) offerEphemeral(s *state.Subscription) {
	if !s.Active || !s.Open {
		return
	}
	switch {
	case s.Kind == state.KindSession:
		f.offerSession(s)
		return
	case s.TopK > 0:
		f.hub.ranked.offerEphemeral(s.Conn, nil, s, wirev1.Overflow(s.Overflow))
		return
	case s.Kind != state.KindPlain:
		f.ephemeralRun(s.Conn, nil, s, wirev1.Overflow(s.Overflow), 0)
		return
	}
	if s.Conn.Stamp != f.serial {
		s.Conn.Stamp = f.serial
		f.ephemeralRun(s.Conn, nil, nil, wirev1.Overflow(s.Overflow), 0)
	}
}

// ephemeralRun queues the messages in hand, which no log has: as they are shared where nothing
// speaks against it, else one by one.
func (f *fanout) ephemeralRun(c *state.Conn, t *state.Track, s *state.Subscription, overflow wirev1.Overflow, is sendq.Mark) {
	if t == nil && s == nil && overflow != wirev1.Overflow_OVERFLOW_CONFLATE && c.Phase == state.Open && !c.Draining && f.fresh() && f.fits(c) {
		f.pushRuns(c, nil, f.runs)
		return
	}
	subs := f.sharing(s, f.ms[0].Topic)
	for _, m := range f.ms {
		if t != nil && f.hub.tracks.Judge(t, m) != state.Passes || s != nil && !state.WantedBy(subs, m) {
			f.hub.stats.Drops.Add(wirev1.Code_CODE_FILTERED, 1)
			continue
		}
		f.ephemeral(c, t, subs, overflow, m, is)
	}
}

// ephemeral queues a message that no log has. t or subs say whose it is, where it is not for all
// plain subscriptions.
func (f *fanout) ephemeral(c *state.Conn, t *state.Track, subs []*state.Subscription, overflow wirev1.Overflow, m *exchange.Message, is sendq.Mark) {
	s, named := (*sendq.Stream)(nil), false
	if t != nil {
		s, named = &t.Stream, t.Kind != state.KindPlain
	}
	it := sendq.Delivery(m, s, named, is)
	if len(subs) > 0 {
		f.address(&it, subs)
	}
	f.queueEphemeral(c, &it, overflow)
}

// queueEphemeral queues a message that no log has, as far as there is room.
func (f *fanout) queueEphemeral(c *state.Conn, it *sendq.Item, overflow wirev1.Overflow) {
	m := it.Message()
	if m.ExpiresAt != 0 && m.ExpiresAt <= f.hub.wall {
		f.hub.stats.Drops.Add(wirev1.Code_CODE_EXPIRED, 1)
		return
	}
	if c.Phase != state.Open || c.Draining {
		return
	}
	if overflow == wirev1.Overflow_OVERFLOW_CONFLATE {
		if n := c.Out.Replace(it); n > 0 {
			f.hub.stats.Drops.Add(wirev1.Code_CODE_CONFLATED, uint64(n))
			return
		}
	}
	for {
		why := f.hub.full(c, len(it.Bytes()))
		if why == wirev1.Code_CODE_OK {
			break
		}
		if overflow == wirev1.Overflow_OVERFLOW_DISCONNECT {
			f.hub.fail(c, wirev1.Code_CODE_SLOW_CONSUMER, "the subscription's queue is full")
			return
		}
		f.hub.stats.Drops.Add(why, 1)
		if !c.Out.DropOldestEphemeral() {
			return
		}
	}
	f.hub.push(c, it)
}
