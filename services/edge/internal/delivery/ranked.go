package delivery

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"
)

const (
	// candidatesShare is the part of the loop's queues that candidates may take which gather or are
	// ranked: one in so many bytes.
	candidatesShare = 8
	// rankReadBytes are asked for at a time by a ranked subscription that is behind.
	rankReadBytes = 1 << 20
)

// rankedDelivery hands on what package ranked decides: which candidates are ranked for whom, and in
// which order a track gets them, as far as windows and queue have room. Between its rankings a
// track is behind, and reads what it does not find in a window from the log: so nothing that
// happens to a ranking loses a message.
type rankedDelivery struct {
	hub  *Hub
	room *ranked.Room[rankMember]
	seen rankedTrack // scratch
}

// rankState is what the track of subscriptions with rank_top_k has beside.
type rankState = ranked.State[rankMember]

// rankMember is a track, or a subscription without one.
type rankMember struct {
	track trackRef
	sub   subRef
}

func newRanked(h *Hub) rankedDelivery {
	d := rankedDelivery{hub: h, seen: rankedTrack{hub: h}}
	d.room = ranked.New(ranked.Config[rankMember]{
		Loop: h.cfg.Loop, Delivery: rankPort{h}, Mesh: h.mesh, Most: h.lim.QueueMemory / candidatesShare, Jobs: &h.rooms.jobs, Cost: &h.cost,
	})
	return d
}

// subscribe makes a new subscription one that is ranked.
func (d *rankedDelivery) subscribe(s *sub, topK uint32) {
	if s.subMore == noSubMore {
		s.subMore = d.hub.subMores.Take()
	}
	s.topK = topK
	if s.kind == kindPlain {
		s.kind = kindOwn
	}
}

// setTopK works out how many of the best the subscriptions of a track want together: they get one
// Message for all, so they are ranked if all want that.
func (d *rankedDelivery) setTopK(t *track) {
	topK := t.first.topK
	for _, s := range t.also {
		if s.topK == 0 {
			topK = 0
		}
		if topK > 0 {
			topK = max(topK, s.topK)
		}
	}
	if topK == 0 && t.rank == nil {
		return
	}
	more := d.hub.tracks.more(t)
	if more.rank == nil {
		more.rank = &rankState{}
	}
	more.rank.TopK = topK
	if t.overflow == overflowConflate || t.overflow == overflowDropOldest {
		// there is no oldest or newest in what comes best first
		t.overflow = overflowDefault
	}
}

// ranks reports whether the messages of a ranked track are ranked: its namespace may say otherwise
// by now.
func (d *rankedDelivery) ranks(t *track) bool {
	return t.rank.TopK > 0 && d.hub.topics.policy(t.topic).Rank != nil
}

// await has a track that is behind wait for the window of its topic.
func (d *rankedDelivery) await(t *track) {
	if !t.reading {
		t.reading = true
		d.room.Await(t.topic.name, d.hub.topics.policy(t.topic), t.epoch, d.hub.fan.ms, rankMember{track: t.ref()})
	}
}

// offer has a track wait for the window that the durable messages in hand are in.
func (d *rankedDelivery) offer(t *track) {
	f, c := &d.hub.fan, t.c
	if c.state != stateOpen || c.draining || t.epoch != f.ms[0].Epoch && !d.hub.epochOf(t, f.ms[0]) || f.ms[len(f.ms)-1].Seq <= t.pos {
		return
	}
	switch {
	case !t.behind && !d.ranks(t):
		d.hub.fallBehind(t)
	case !t.behind:
		t.behind = true
		d.await(t)
	case t.rank.Level && !d.room.Gathers(t.topic.name) && d.ranks(t):
		// it will be there in time for that
		d.room.Begin(t.topic.name, d.hub.topics.policy(t.topic), t.epoch, f.ms)
	}
}

// offerEphemeral makes a track, or else a subscription without one, a member of the ephemeral
// candidates in hand. Where there is no room for more, or the namespace does not rank, they are
// queued at once.
func (d *rankedDelivery) offerEphemeral(c *conn, t *track, s *sub, overflow wirev1.Overflow) {
	f := &d.hub.fan
	if c.state != stateOpen || c.draining {
		return
	}
	var m rankMember
	var joined *uint64
	switch {
	case t == nil:
		m.sub, joined = s.handle(), &s.subMore.joined
	case t.rank.TopK == 0:
		f.ephemeralRun(c, t, s, overflow, 0)
		return
	default:
		m.track, joined = t.ref(), &t.rank.Joined
	}
	if mark, joins := d.room.Join(f.ms, d.hub.cfg.PolicyFor, m, joined); !joins {
		f.ephemeralRun(c, t, s, overflow, mark)
	}
}

// rankPort is the hub as package ranked sees it.
type rankPort struct{ h *Hub }

// Arrived implements ranked.Delivery.
func (p rankPort) Arrived(e *exchange.Range, waiting []rankMember) {
	p.h.jobs.Push(&arrival{e: e, members: waiting})
}

// GoOn implements ranked.Delivery.
func (p rankPort) GoOn(m rankMember, k *ranked.Ranking[rankMember]) {
	if t := m.track.get(); t != nil && t.rank != nil && t.rank.Awaits(k) {
		p.h.replay.enqueue(t)
	}
}

// Interest implements ranked.Delivery.
func (p rankPort) Interest(m rankMember, topic string) (i ranked.Interest, ok bool) {
	if t := m.track.get(); t != nil {
		i = ranked.Interest{Profile: t.c.profile, TopK: t.rank.TopK}
		if t.first.filtered || len(t.also) > 0 {
			i.Wants = func(x *exchange.Message) bool { return p.h.judge(t, x) == passes }
		}
		return i, true
	}
	s := m.sub.get()
	if s == nil || !s.active {
		return i, false
	}
	subs := p.h.fan.sharing(s, topic)
	i = ranked.Interest{Profile: s.c.profile, TopK: mostOf(subs)}
	if s.filtered || len(subs) > 1 {
		i.Wants = func(x *exchange.Message) bool { return wantedBy(subs, x) }
	}
	return i, true
}

// Send implements ranked.Delivery.
func (p rankPort) Send(m rankMember, picks []ranked.Pick) (ok bool) {
	t, s := m.track.get(), m.sub.get()
	var c *conn
	var subs []*sub
	var overflow wirev1.Overflow
	switch {
	case t != nil:
		c, overflow = t.c, wirev1.Overflow(t.overflow)
	case s != nil && s.active:
		c, overflow = s.c, wirev1.Overflow(s.overflow)
		if len(picks) > 0 {
			subs = p.h.fan.sharing(s, picks[0].Message.Topic)
		}
	default:
		return false
	}
	for _, pick := range picks {
		p.h.fan.ephemeral(c, t, subs, overflow, pick.Message, pick.Mark)
	}
	return true
}

// Dropped implements ranked.Delivery.
func (p rankPort) Dropped(why wirev1.Code, n int) { p.h.stats.Drops.add(why, uint64(n)) }

// Unranked implements ranked.Delivery.
func (p rankPort) Unranked(why wirev1.Code, n int) { p.h.stats.Unranked.add(why, uint64(n)) }

// rankedTrack is a track as package ranked sees it.
type rankedTrack struct {
	hub *Hub
	t   *track
}

// of is good until it is asked for again.
func (r *rankedTrack) of(t *track) *rankedTrack {
	r.t = t
	return r
}

// Outcome implements ranked.Track.
func (r *rankedTrack) Outcome(m *exchange.Message) ranked.Outcome {
	t := r.t
	switch {
	case t.cur != nil && t.cur.Has(m.Seq), t.win != nil && t.win.Find(m.Seq) != nil:
		return ranked.Had
	case r.hub.hasExpired(m):
		return ranked.Expired
	case r.hub.judge(t, m) == filtered:
		return ranked.Filtered
	}
	return ranked.Wanted
}

// WantsAll implements ranked.Track.
func (r *rankedTrack) WantsAll(from, to uint64) bool {
	t := r.t
	if t.first.filtered || len(t.also) > 0 {
		return false
	}
	return t.cur == nil || t.cur.Missing(from, to) == to-from+1
}

// Gap implements ranked.Track.
func (r *rankedTrack) Gap(from, to uint64, why wirev1.Code) { r.hub.gaps.addGap(r.t, from, to, why) }

// Expire implements ranked.Track.
func (r *rankedTrack) Expire(m *exchange.Message) { r.hub.gaps.expired(r.t, m) }

// arrived has a ranked track wait for the ranking of a range that has come, if that has
// candidates for it, and is not what was missing of an order.
func (d *rankedDelivery) arrived(t *track, j *arrival) (waits bool) {
	r := t.rank
	if _, ordered := r.Order.Next(); ordered || len(j.e.Messages) == 0 || !d.ranks(t) || d.unjudgedIn(t, j.e) {
		return false
	}
	if j.ranking == nil {
		j.ranking = d.room.CandidatesOf(j.e, d.hub.topics.policy(t.topic))
	}
	return d.room.Ask(j.ranking, r, rankMember{track: t.ref()}, t.c.profile, t.pos, d.seen.of(t))
}

// unjudgedIn reports whether the range was asked for before a content filter was known.
func (d *rankedDelivery) unjudgedIn(t *track, e *exchange.Range) bool {
	if !t.first.filtered && len(t.also) == 0 {
		return false
	}
	d.hub.addCost(len(e.Messages))
	return slices.ContainsFunc(e.Messages, func(m *exchange.Message) bool { return m.Seq > t.pos && d.hub.judge(t, m) == unjudged })
}

// goOn has a ranked track go on, and says how much it did.
func (d *rankedDelivery) goOn(t *track) (done int) {
	r := t.rank
	switch r.Step(t.rng != nil) {
	case ranked.Wait:
		return 0
	case ranked.Read:
		d.hub.replay.ask(t)
		return 0
	case ranked.TakeUp:
		l, e := r.TakeUp()
		d.hub.replay.holdRange(t, e)
		t.pos = d.room.LineUp(l, r, t.pos, d.seen.of(t))
	case ranked.LineUp:
		if d.unjudgedIn(t, t.rng) {
			d.hub.replay.releaseRange(t)
			d.hub.replay.readLater(t)
			d.hub.replay.enqueue(t)
			return 1
		}
		t.pos = d.room.LineUp(ranked.Unranked[rankMember](t.rng.Messages), r, t.pos, d.seen.of(t))
	case ranked.HandOn:
	}
	return 1 + d.handOn(t)
}

// handOn hands on some of a track's order, and says how many.
func (d *rankedDelivery) handOn(t *track) (done int) {
	o := &t.rank.Order
	for most := d.hub.replay.turnOf(t.c, t.ack); done < most; done++ {
		next, ok := o.Next()
		if !ok {
			d.ends(t)
			return done
		}
		m, elsewhere := ranked.Find(t.rng, next.Seq)
		switch {
		case elsewhere:
			d.hub.replay.releaseRange(t)
			d.hub.replay.enqueue(t)
			return done
		case m == nil:
			d.hub.gaps.addGap(t, next.Seq, next.Seq, wirev1.Code_CODE_RETENTION)
			o.Pop()
			continue
		}
		switch d.seen.of(t).Outcome(m) {
		case ranked.Had:
			o.Pop()
			continue
		case ranked.Expired:
			d.hub.gaps.expired(t, m)
			o.Pop()
			continue
		case ranked.Wanted, ranked.Filtered:
		}
		why := wirev1.Code_CODE_QUEUE_FULL
		if d.hub.drained(t.c) {
			why = d.hub.deliver(t, m, next.Mark)
		}
		if why != wirev1.Code_CODE_OK {
			d.hub.replay.putOff(t, why)
			return done
		}
		o.Pop()
	}
	d.hub.replay.enqueue(t)
	return done
}

// ends decides how it goes on behind an order.
func (d *rankedDelivery) ends(t *track) {
	if t.rng == nil {
		d.hub.replay.enqueue(t)
		return
	}
	d.hub.replay.rangeEnds(t)
}
